// Needs Slidegate at SLIDEGATE_URL with a policy of 2/min for POST /login and one for GET /reports by
// plan, of 3/min for `pro` and of 1/min for others, and nobody at NOBODY_URL.
// Hono itself is imitated: what the middleware uses of a context is little.
import assert from "node:assert/strict";
import http from "node:http";
import test from "node:test";
import { slidegate } from "./slidegate.mjs";

const client = () => "203.0.113.8";

async function send(middleware, method, path, user, headers = { accept: "*/*" }) {
  const context = {
    req: { method, url: `http://example.com${path}`, header: () => headers },
    res: null,
    get: () => user,
  };
  const refusal = await middleware(context, async () => { context.res = new Response("hello"); });
  return refusal ?? context.res;
}

const login = (middleware) => send(middleware, "POST", "/login?x");

test("clients are limited and told where they stand", async () => {
  const limit = slidegate({ url: process.env.SLIDEGATE_URL, timeoutMs: 5000, client });
  for (const remaining of ["1", "0"]) {
    const allowed = await login(limit);
    assert.equal(allowed.status, 200);
    assert.equal(allowed.headers.get("x-ratelimit-remaining"), remaining);
  }
  const refused = await login(limit);
  assert.equal(refused.status, 429);
  assert.match(refused.headers.get("retry-after"), /^[1-9]/);
  assert.equal((await refused.json()).status, 429);
});

test("users have what their plan says", async () => {
  const limit = slidegate({
    url: process.env.SLIDEGATE_URL, timeoutMs: 5000, client, token: "unused on this machine",
    user: (c) => c.get("user")?.id, plan: (c) => c.get("user")?.plan,
  });
  const statuses = async (user) => {
    const answers = [];
    for (let i = 0; i < 4; i += 1) answers.push(await send(limit, "GET", "/reports", user));
    return answers.map((answer) => [answer.status, answer.headers.get("x-ratelimit-limit")]);
  };
  const pro = { id: "node-ann", plan: "pro" };
  assert.deepEqual(await statuses(pro), [[200, "3"], [200, "3"], [200, "3"], [429, "3"]]);
  assert.deepEqual(await statuses({ id: "node-bob" }), [[200, "1"], [429, "1"], [429, "1"], [429, "1"]]);
  assert.deepEqual((await statuses(undefined))[0], [200, "1"], "nobody has the address's");
});

// First, because the cause is logged once a minute.
test("a wrong token does as told and is logged", async (t) => {
  const problem = { status: 401, detail: "wrong token" };
  const server = http.createServer((_, answer) => answer.writeHead(401).end(JSON.stringify(problem)));
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  t.after(() => server.close());
  const url = `http://127.0.0.1:${server.address().port}`;
  const logged = [];
  const warn = console.warn;
  console.warn = (line) => logged.push(line);
  t.after(() => { console.warn = warn; });
  for (const [onFailure, status] of [["open", 200], ["closed", 503], ["open", 200]]) {
    assert.equal((await login(slidegate({ url, timeoutMs: 5000, client, onFailure }))).status, status);
  }
  assert.deepEqual(logged, ['slidegate gave no decision: 401 "wrong token"']);
});

test("without an answer it does as told", async () => {
  const url = process.env.NOBODY_URL;
  assert.equal((await login(slidegate({ url, client }))).status, 200);
  assert.equal((await login(slidegate({ url, client, onFailure: "closed" }))).status, 503);
});

test("a malformed request is refused and does not pass for want of an answer", async () => {
  const limit = slidegate({ url: process.env.SLIDEGATE_URL, timeoutMs: 5000, client });
  assert.equal((await send(limit, "post", "/login")).status, 400);
  const many = Object.fromEntries(Array.from({ length: 300 }, (_, i) => [`x-${i}`, "y"]));
  assert.equal((await send(limit, "GET", "/login", undefined, many)).status, 400);
});
