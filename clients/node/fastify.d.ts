import type { FastifyPluginAsync, FastifyRequest } from "fastify";
import type { Decision, MiddlewareOptions } from "./index.js";

/** A plugin for Fastify, with an `onRequest` hook. Handlers find the decision in `request.slidegate`. */
export declare const slidegate: FastifyPluginAsync<MiddlewareOptions<FastifyRequest>>;

declare module "fastify" {
  interface FastifyRequest {
    slidegate: Decision;
  }
}
