// Middleware for Hono that asks Slidegate about each request.
//
//   app.use(slidegate({ client: (c) => getConnInfo(c).remote.address }));

const UNASKED = { "content-type": "text/plain", "retry-after": "1" };

/**
 * @param url       where Slidegate listens for decisions
 * @param timeoutMs how long to wait for it
 * @param onFailure "open" lets requests pass if it cannot be asked, "closed" refuses them
 * @param client    the client's address, of a Hono context
 * @param user      the authenticated user's id, if there is one
 */
export function slidegate({
  url = "http://127.0.0.1:8081", timeoutMs = 200, onFailure = "open", client, user = () => null,
}) {
  return async (c, next) => {
    const decision = await ask(`${url}/v1/decide`, timeoutMs, {
      method: c.req.method, path: new URL(c.req.url).pathname, headers: c.req.header(),
      client: client(c), user: user(c),
    });
    if (!decision && onFailure === "closed") return new Response("", { status: 503, headers: UNASKED });
    const { verdict, status, body, headers = {} } = decision ?? { verdict: "allow" };
    if (verdict !== "allow") return new Response(body, { status, headers });
    await next();
    for (const [name, value] of Object.entries(headers)) c.res.headers.set(name, value);
  };
}

async function ask(url, timeoutMs, question) {
  const headers = { "content-type": "application/json" };
  const signal = AbortSignal.timeout(timeoutMs);
  const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(question), signal })
    .catch(() => null);
  // What Slidegate cannot decide, such as a malformed request, has a status too, and may not pass.
  const decision = await answer?.json().catch(() => null);
  return decision?.verdict || decision?.status ? decision : null;
}
