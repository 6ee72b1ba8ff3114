import type { Request, RequestHandler } from "express";
import type { Decision, MiddlewareOptions } from "./index.js";

/** A middleware for Express 4 and 5. Handlers find the decision in `req.slidegate`. */
export declare function slidegate(options?: MiddlewareOptions<Request>): RequestHandler;

declare global {
  namespace Express {
    interface Request {
      slidegate: Decision;
    }
  }
}
