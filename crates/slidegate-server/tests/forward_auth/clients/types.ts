// What the declarations allow and refuse; compiled only.
import express from "express";
import fastify from "fastify";
import { Hono } from "hono";
import { Client, Decision, SettleError } from "slidegate";
import { slidegate as forExpress } from "slidegate/express";
import { slidegate as forFastify } from "slidegate/fastify";
import { slidegate as forHono } from "slidegate/hono";

// @ts-expect-error: only "open" and "closed".
new Client({ fail: "opne" });
// @ts-expect-error: it is called timeoutMs.
new Client({ timeout: 5 });
// @ts-expect-error: users are strings.
forExpress({ describe: () => ({ user: 7 }) });

express().use(forExpress({ describe: async (req) => ({ user: req.get("x-user"), hold: 2 }) }));
express().get("/", async (req) => {
  const decision: Decision = req.slidegate;
  await decision.settle(1);
});

fastify().register(forFastify, { fail: "closed", describe: (request) => ({ client: request.ip }) });
// @ts-expect-error: options of the plugin are checked.
fastify().register(forFastify, { fail: "opne" });
fastify().get("/", async (request) => request.slidegate.refund());

new Hono().use(forHono({ describe: (c) => ({ user: c.req.header("x-user") }) }));
new Hono().get("/", (c) => c.json({ wait: c.get("slidegate").retryAfterMs }));

// @ts-expect-error: absent unless there was an answer.
const status: number = new SettleError("").status;
// @ts-expect-error: decisions come from a client.
new Decision();
