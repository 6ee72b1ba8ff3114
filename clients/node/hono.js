import { asker } from "./client.js";

export function slidegate(options) {
  const ask = asker(options);
  return async (c, next) => {
    const decision = await ask(c, {
      method: c.req.method,
      path: new URL(c.req.url).pathname,
      headers: c.req.header(),
    });
    c.set("slidegate", decision);
    if (!decision.allowed) return new Response(decision.body, decision);
    await next();
    for (const [name, value] of Object.entries(decision.headers)) c.header(name, value);
  };
}
