import { asker, withoutPseudoHeaders } from "./client.js";

export function slidegate(options) {
  const ask = asker(options);
  return async (req, res, next) => {
    let decision;
    try {
      decision = await ask(req, {
        method: req.method,
        path: req.originalUrl,
        headers: withoutPseudoHeaders(req.headers),
        client: req.ip,
      });
    } catch (error) {
      // Express 4 does not wait for promises.
      return next(error);
    }
    req.slidegate = decision;
    for (const [name, value] of Object.entries(decision.headers)) res.setHeader(name, value);
    if (decision.allowed) return next();
    res.writeHead(decision.status).end(decision.body);
  };
}
