// The same application with each framework, failing open and failing closed, on the ports given.
import { serve } from "@hono/node-server";
import { getConnInfo } from "@hono/node-server/conninfo";
import newExpress from "express";
import newFastify from "fastify";
import { Hono } from "hono";
import { slidegate as express } from "slidegate/express";
import { slidegate as fastify } from "slidegate/fastify";
import { slidegate as hono } from "slidegate/hono";

const { SLIDEGATE_URL: url, SLIDEGATE_TOKEN: token, SLIDEGATE_TIMEOUT_MS: timeout } = process.env;
const options = { url, token, timeoutMs: Number(timeout) };
// Stands for an application that knows its users.
const known = (user, path) => ({ user, plan: "pro", ...(path === "/metered" ? { hold: 2 } : { refundable: true }) });

function startExpress(port, fail) {
  const app = newExpress();
  app.use(express({ ...options, fail, describe: (req) => known(req.get("x-user"), req.path) }));
  app.get("/reports", (req, res) => res.send("hello"));
  app.get("/metered", async (req, res) => {
    await req.slidegate.settle(1);
    res.send("hello");
  });
  app.get("/broken", async (req, res) => {
    await req.slidegate.refund();
    res.status(500).end();
  });
  app.listen(port, "127.0.0.1");
}

async function startFastify(port, fail) {
  const app = newFastify();
  const describe = async (request) => known(request.headers["x-user"], request.url);
  await app.register(fastify, { ...options, fail, describe });
  app.get("/reports", async () => "hello");
  app.get("/metered", async (request) => {
    await request.slidegate.settle(1);
    return "hello";
  });
  app.get("/broken", async (request, reply) => {
    await request.slidegate.refund();
    return reply.code(500).send();
  });
  await app.listen({ port, host: "127.0.0.1" });
}

function startHono(port, fail) {
  const app = new Hono();
  const describe = (c) => ({ client: getConnInfo(c).remote.address, ...known(c.req.header("x-user"), c.req.path) });
  app.use(hono({ ...options, fail, describe }));
  app.get("/reports", (c) => c.text("hello"));
  app.get("/metered", async (c) => {
    await c.get("slidegate").settle(1);
    return c.text("hello");
  });
  app.get("/broken", async (c) => {
    await c.get("slidegate").refund();
    return c.body(null, 500);
  });
  serve({ fetch: app.fetch, port, hostname: "127.0.0.1" });
}

const ports = process.argv.slice(2).map(Number);
for (const start of [startExpress, startFastify, startHono]) {
  for (const fail of ["open", "closed"]) await start(ports.shift(), fail);
}
