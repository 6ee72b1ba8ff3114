// Middleware for Hono that asks Slidegate about each request.
//
//   app.use(slidegate({
//     client: (c) => getConnInfo(c).remote.address,
//     user: (c) => c.get("user")?.id,
//     plan: (c) => c.get("user")?.plan,
//   }));

const UNASKED = { "content-type": "text/plain", "retry-after": "1" };

/**
 * @param url       where Slidegate listens for decisions
 * @param token     the token of that listener, if it has one
 * @param timeoutMs how long to wait for it
 * @param onFailure "open" lets requests pass if it cannot be asked, "closed" refuses them
 * @param client    the client's address, of a Hono context; behind a balancer, what that one says
 * @param user      the authenticated user's id, if there is one
 * @param plan      the plan that the user has, if the policies go by plans
 */
export function slidegate({
  url = "http://127.0.0.1:8081", token, timeoutMs = 200, onFailure = "open",
  client, user = () => null, plan = () => null,
}) {
  return async (c, next) => {
    const decision = await ask(`${url}/v1/decide`, token, timeoutMs, {
      method: c.req.method, path: new URL(c.req.url).pathname, headers: c.req.header(),
      client: client(c), user: user(c) ?? null, plan: plan(c) ?? null,
    });
    if (!decision && onFailure === "closed") return new Response("", { status: 503, headers: UNASKED });
    const { verdict, status, body, headers = {} } = decision ?? { verdict: "allow" };
    if (verdict !== "allow") return new Response(body, { status, headers });
    await next();
    for (const [name, value] of Object.entries(headers)) c.res.headers.set(name, value);
  };
}

async function ask(url, token, timeoutMs, question) {
  const headers = { "content-type": "application/json" };
  if (token) headers.authorization = `Bearer ${token}`;
  const signal = AbortSignal.timeout(timeoutMs);
  let answer;
  try {
    answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(question), signal });
  } catch (error) {
    return undecided(`no answer: ${error.message}`);
  }
  const decision = await answer.json().catch(() => null);
  if (decision?.verdict) return decision;
  // The token may be wrong, or the question, or the request itself: that one may not pass.
  undecided(`${answer.status} ${JSON.stringify(decision?.problems ?? decision?.detail ?? "")}`);
  return answer.status === 400 ? { status: 400, body: "Bad Request" } : null;
}

let toldAt = -Infinity;

// Limits that are off are no secret: once a minute the log has the cause.
function undecided(cause) {
  if (Date.now() - toldAt < 60_000) return null;
  toldAt = Date.now();
  console.warn(`slidegate gave no decision: ${cause}`);
  return null;
}
