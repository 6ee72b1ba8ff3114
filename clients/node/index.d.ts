/** How to reach Slidegate, and what to do if it does not answer. */
export interface ClientOptions {
  /** The address of the decision API. Default: `http://127.0.0.1:8081`. */
  url?: string | undefined;
  /** The token of the decision API (`decisions.token_file`). Default: none. */
  token?: string | undefined;
  /** How long to wait for an answer, in milliseconds. Default: 100. */
  timeoutMs?: number | undefined;
  /** Whether a request passes (`open`, the default) or gets 503 (`closed`) if there is no answer. */
  fail?: "open" | "closed" | undefined;
  /** Receives a line for each missing decision and each refused question. Default: `console.warn`. */
  warn?: ((message: string) => void) | undefined;
}

/** What the application knows about a request. Members override those that the middleware reads from the request. */
export interface Description {
  /** The client's IP address. */
  client?: string | null | undefined;
  /** The id of the authenticated user. */
  user?: string | null | undefined;
  /** The customer, whose keys and users share an account. */
  customer?: string | null | undefined;
  plan?: string | null | undefined;
  /** Units, from 1. Default: 1. */
  cost?: number | null | undefined;
  /** Units to hold until `Decision.settle` is called with the cost, in place of `cost`. */
  hold?: number | null | undefined;
  /** Whether `Decision.refund` may be called. Not needed with `hold`. */
  refundable?: boolean | null | undefined;
  /** Whether the application vouches for the headers, including those that policies name. */
  trusted?: boolean | null | undefined;
  method?: string | undefined;
  path?: string | undefined;
  headers?: Record<string, string | readonly string[] | undefined> | undefined;
}

/** One charge of a question that names accounts. */
export interface Charge {
  policy: string;
  identity: string | { kind: string; value?: string };
  plan?: string | undefined;
  cost?: number | undefined;
}

/** A question to the decision API: about a request, or with `charges`. */
export interface Question extends Description {
  charges?: readonly Charge[] | undefined;
}

/** Options of a middleware: those of the client, and what the application knows about a request of its framework. */
export interface MiddlewareOptions<Request> extends ClientOptions {
  describe?: ((request: Request) => Description | Promise<Description>) | undefined;
}

/** Asks one Slidegate. The middlewares use it; call it for what is not a request of a framework. */
export declare class Client {
  /** Throws a TypeError that names the option if one is unknown or invalid. */
  constructor(options?: ClientOptions);
  /** Never rejects because Slidegate is unreachable: the decision then depends on `fail`. */
  decide(question: Question): Promise<Decision>;
}

/** What Slidegate decided about a request. */
export declare class Decision {
  private constructor();
  /** Whether the request may pass: whether the verdict is `allow`. */
  readonly allowed: boolean;
  readonly verdict: "allow" | "deny" | "block" | "unavailable";
  readonly reason?: string;
  /** After how many milliseconds the same request would be allowed, if waiting helps. */
  readonly retryAfterMs?: number;
  /** Whether a failure affected the decision: of Slidegate's store, or no answer from Slidegate. */
  readonly degraded: boolean;
  /** The status for the client if the request was refused, else 200. */
  readonly status: number;
  /** Headers for the response, whether the request was allowed or refused. */
  readonly headers: Readonly<Record<string, string>>;
  /** The body for the client, if the request was refused. */
  readonly body: string;
  /**
   * States what a request with a `hold` cost. Rejects with a `SettleError` if Slidegate did not settle it.
   * Does nothing if the decision spent nothing, as without an answer.
   */
  settle(units: number): Promise<void>;
  /** Gives back everything that a request with a `hold` or `refundable: true` spent. Rejects like `settle`. */
  refund(): Promise<void>;
}

/** The rejection of `Decision.settle` and `Decision.refund`. What was not settled stays spent until its window ends. */
export declare class SettleError extends Error {
  /** The HTTP status, if there was an answer: 409 if it was settled before, 404 if it was too late. */
  readonly status?: number;
}
