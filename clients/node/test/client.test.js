import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { Client, SettleError } from "slidegate";
import { slidegate as express } from "slidegate/express";
import { slidegate as fastify } from "slidegate/fastify";
import { slidegate as hono } from "slidegate/hono";

const OK = { verdict: "allow", id: "i", degraded: false, headers: { "x-ratelimit-limit": "1" } };
let answers, questions, server, url;

before(async () => {
  server = createServer((request, response) => {
    let body = "";
    request.on("data", (bytes) => (body += bytes));
    request.on("end", () => {
      questions.push([request.url, request.headers["x-slidegate-token"], JSON.parse(body)]);
      const [status, answer] = answers.shift();
      response.writeHead(status).end(typeof answer === "string" ? answer : JSON.stringify(answer));
    });
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  url = `http://127.0.0.1:${server.address().port}`;
});

after(() => server.close());

function client(options, ...next) {
  [answers, questions] = [next, []];
  const warnings = [];
  return [new Client({ url, timeoutMs: 5000, warn: (line) => warnings.push(line), ...options }), warnings];
}

test("an invalid option is named", () => {
  for (const [options, message] of [
    [{ url: "127.0.0.1:8081" }, /url must be an http or https URL, not "127.0.0.1:8081"/],
    [{ url: "ftp://a/" }, /url must be an http or https URL/],
    [{ url: "http://me:secret@a/" }, /url must not contain a user or password$/],
    [{ token: 7 }, /token must be a string, not 7/],
    [{ timeoutMs: 0 }, /timeoutMs must be .* not 0/],
    [{ timeoutMs: "100" }, /timeoutMs must be .* not "100"/],
    [{ timeoutMs: NaN }, /timeoutMs must be/],
    [{ timeoutMs: 2 ** 31 }, /timeoutMs must be/],
    [{ fail: "opne" }, /fail must be "open" or "closed", not "opne"/],
    [{ warn: true }, /warn must be a function, not true/],
    [{ timeout: 5 }, /unknown option "timeout"/],
    [{ toString: 5 }, /unknown option "toString"/],
  ]) {
    assert.throws(() => new Client(options), { name: "TypeError", message }, JSON.stringify(options));
    assert.throws(() => express(options), { message });
    assert.throws(() => hono(options), { message });
  }
  for (const middleware of [express, hono]) {
    assert.throws(() => middleware({ describe: {} }), /describe must be a function, not {}/);
  }
  assert.doesNotThrow(() => new Client({ token: undefined, url: undefined }));
});

test("an invalid option of the plugin is named, and those of register are not its own", async () => {
  const app = { decorateRequest() {}, addHook() {} };
  await assert.rejects(fastify(app, { fail: "opne", prefix: "/a" }), /fail must be "open" or "closed"/);
  await fastify(app, { prefix: "/a", logLevel: "warn" });
});

test("a path in the address is kept", async () => {
  const [slidegate] = client({ url: `${url}/behind/proxy`, token: "t" }, [200, OK]);
  assert.equal((await slidegate.decide({ user: "7" })).allowed, true);
  assert.deepEqual(questions, [["/behind/proxy/v1/decide", "t", { user: "7" }]]);
});

test("only what any client can cause is refused when failing open", async () => {
  const refused = { verdict: "block", reason: "bad-request", status: 400, body: "no", headers: { a: "b" } };
  for (const [answer, open, closed, warning] of [
    [[400, refused], 400, 400, undefined],
    [[400, { detail: "path: is long" }], 400, 400, /refused the question: 400 path: is long/],
    [[413, "too large"], 400, 400, /refused the question: 413/],
    [[401, { detail: "no token" }], 200, 503, /gave no decision: 401 no token/],
    [[500, ""], 200, 503, /gave no decision: 500/],
    [[200, "hello"], 200, 503, /gave no decision: 200/],
    [[200, "null"], 200, 503, /gave no decision: 200/],
    [[200, "[]"], 200, 503, /gave no decision: 200/],
    [[200, { verdict: "deny" }], 200, 503, /gave no decision: 200/],
  ]) {
    for (const [fail, status] of Object.entries({ open, closed })) {
      const [slidegate, warnings] = client({ fail }, answer);
      const decision = await slidegate.decide({});
      assert.equal(decision.status, status, `${answer}`);
      assert.equal(decision.allowed, status === 200, `${answer}`);
      assert.equal(decision.degraded, status !== 400, `${answer}`);
      assert.equal(warnings.length, warning ? 1 : 0);
      if (warning) assert.match(warnings[0], warning);
      await decision.settle(1);
      assert.equal(questions.length, 1, "nothing was spent that could be settled");
    }
  }
});

test("a question that JSON cannot express does not pass", async () => {
  await assert.rejects(client()[0].decide({ cost: 1n }), TypeError);
});

test("a settlement that fails rejects", async () => {
  const [slidegate] = client({}, [200, OK], [200, {}], [409, { detail: "it was settled before" }], [200, {}]);
  const decision = await slidegate.decide({ hold: 2 });
  await decision.settle(1);
  await assert.rejects(decision.settle(1), (error) => {
    assert.ok(error instanceof SettleError);
    assert.equal(error.status, 409);
    assert.match(error.message, /409 it was settled before/);
    return true;
  });
  await decision.refund();
  const settled = (units) => ["/v1/settle", undefined, { id: "i", units }];
  assert.deepEqual(questions.slice(1), [settled(1), settled(1), settled(0)]);
});

test("express gets the error of describe", async () => {
  const failing = express({ url, describe: () => Promise.reject(new Error("no session")) });
  let passed;
  await failing({ headers: {} }, {}, (error) => (passed = error));
  assert.match(passed.message, /no session/);
});
