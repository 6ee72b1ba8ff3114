import { asker, withoutPseudoHeaders } from "./client.js";

export async function slidegate(app, options) {
  // Fastify passes the options of `register` too.
  const { prefix, logLevel, logSerializers, ...own } = options;
  const ask = asker(own);
  app.decorateRequest("slidegate", null);
  app.addHook("onRequest", async (request, reply) => {
    const decision = await ask(request, {
      method: request.method,
      path: request.url,
      headers: withoutPseudoHeaders(request.headers),
      client: request.ip,
    });
    request.slidegate = decision;
    reply.headers(decision.headers);
    // As bytes, because Fastify adds a charset to the content type of a string.
    if (!decision.allowed) return reply.code(decision.status).send(Buffer.from(decision.body));
  });
}

// What fastify-plugin does: the hook is for all routes, not only for those that the plugin registers.
slidegate[Symbol.for("skip-override")] = true;
slidegate[Symbol.for("fastify.display-name")] = "slidegate";
