import type { Context, MiddlewareHandler } from "hono";
import type { Decision, MiddlewareOptions } from "./index.js";

/**
 * A middleware for Hono. Handlers find the decision in `c.get("slidegate")`. Hono does not know the client's address:
 * pass it in `describe`.
 */
export declare function slidegate(options?: MiddlewareOptions<Context>): MiddlewareHandler;

declare module "hono" {
  interface ContextVariableMap {
    slidegate: Decision;
  }
}
