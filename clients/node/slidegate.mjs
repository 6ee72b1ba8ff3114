// Asks Slidegate about each request of Express, Fastify or Hono. Needs nothing but Node's own fetch.
//
//   app.use(express({ describe: (req) => ({ user: req.user?.id, plan: req.user?.plan }) }));
//   app.addHook("onRequest", fastify({ fail: "closed" }));
//   app.use(hono({ describe: (c) => ({ client: getConnInfo(c).remote.address }) }));
//
// Options: url (where Slidegate decides), token (if it wants one), timeoutMs, fail ("open" lets requests
// pass if there is no answer, "closed" refuses them), describe (adds what the program knows: user, plan,
// cost, client). With `hold: 2000` added, a handler says later what its request has cost:
// `await req.slidegate.settle(1370)`, in Hono `await c.get("slidegate").settle(1370)`. With a hold or
// `refundable: true`, one that fails gives back what was spent: `await req.slidegate.refund()`.

export const express = (options = {}) => async (req, res, next) => {
  const { method, originalUrl: path, headers, ip: client } = req;
  const decision = await decide(options, { method, path, headers, client, ...options.describe?.(req) });
  req.slidegate = decision;
  for (const [name, value] of Object.entries(decision.headers)) res.setHeader(name, value);
  return decision.verdict === "allow" ? next() : res.writeHead(decision.status).end(decision.body);
};

export const fastify = (options = {}) => async (req, reply) => {
  const { method, url: path, headers, ip: client } = req;
  const decision = await decide(options, { method, path, headers, client, ...options.describe?.(req) });
  req.slidegate = decision;
  reply.headers(decision.headers);
  if (decision.verdict === "allow") return;
  // Bytes, because to the type of a text Fastify adds a charset.
  return reply.code(decision.status).send(Buffer.from(decision.body));
};

export const hono = (options = {}) => async (c, next) => {
  const [path, headers] = [new URL(c.req.url).pathname, c.req.header()];
  const decision = await decide(options, { method: c.req.method, path, headers, ...options.describe?.(c) });
  c.set("slidegate", decision);
  if (decision.verdict !== "allow") return new Response(decision.body, decision);
  await next();
  for (const [name, value] of Object.entries(decision.headers)) c.res.headers.set(name, value);
};

async function decide({ url = "http://127.0.0.1:8081", token, timeoutMs = 100, fail = "open" }, question) {
  const headers = { "content-type": "application/json", ...(token && { "x-slidegate-token": token }) };
  // HTTP/2 has pseudo-headers such as ":path" among the headers.
  const json = (value) => JSON.stringify(value, (name, member) => (name[0] === ":" ? undefined : member));
  const post = (path, value) => fetch(url + path, {
    method: "POST", headers, body: json(value), signal: AbortSignal.timeout(timeoutMs),
  });
  try {
    const answer = await post("/v1/decide", question), decision = await answer.json(), { id } = decision;
    const settle = async (units) => id && post("/v1/settle", { id, units });
    if (decision.verdict) return { ...decision, settle, refund: () => settle(0) };
    // A request that cannot be asked about never passes: any client can send one.
    if ([400, 413].includes(answer.status)) return { status: 400, headers: {}, body: "Bad Request" };
    throw new Error(`${answer.status} ${decision.detail}`);
  } catch (error) {
    console.warn(`slidegate gave no decision: ${error.cause ?? error}`);
    const refusal = { status: 503, headers: { "retry-after": "1" }, body: "Service Unavailable" };
    const nothing = async () => {}, held = { settle: nothing, refund: nothing };
    return { ...(fail === "open" ? { verdict: "allow", headers: {} } : refusal), ...held };
  }
}
