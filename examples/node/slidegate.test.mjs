// Needs Slidegate at SLIDEGATE_URL with a policy of 2/min for POST /login, and nobody at NOBODY_URL.
// Hono itself is imitated: what the middleware uses of a context is little.
import assert from "node:assert/strict";
import test from "node:test";
import { slidegate } from "./slidegate.mjs";

const client = () => "203.0.113.8";

async function login(middleware, method = "POST", headers = { accept: "*/*" }) {
  const context = {
    req: { method, url: "http://example.com/login?x", header: () => headers },
    res: null,
  };
  const refusal = await middleware(context, async () => { context.res = new Response("hello"); });
  return refusal ?? context.res;
}

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

test("without an answer it does as told", async () => {
  const url = process.env.NOBODY_URL;
  assert.equal((await login(slidegate({ url, client }))).status, 200);
  assert.equal((await login(slidegate({ url, client, onFailure: "closed" }))).status, 503);
});

test("a malformed request is refused and does not pass for want of an answer", async () => {
  const limit = slidegate({ url: process.env.SLIDEGATE_URL, timeoutMs: 5000, client });
  assert.equal((await login(limit, "post")).status, 400);
  const many = Object.fromEntries(Array.from({ length: 300 }, (_, i) => [`x-${i}`, "y"]));
  assert.equal((await login(limit, "GET", many)).status, 400);
});
