const DEFAULTS = {
  url: "http://127.0.0.1:8081",
  token: undefined,
  timeoutMs: 100,
  fail: "open",
  warn: (message) => console.warn(message),
};

export class Client {
  #url;
  #headers = { "content-type": "application/json" };
  #timeoutMs;
  #fail;
  #warn;

  constructor(options = {}) {
    const { url, token, timeoutMs, fail, warn } = withDefaults(options);
    this.#url = parseUrl(url);
    if (token !== undefined && typeof token !== "string") throw invalid("token", "a string", token);
    if (token) this.#headers["x-slidegate-token"] = token;
    // Timers for 2^31 ms or more fire at once.
    if (!Number.isInteger(timeoutMs) || timeoutMs < 1 || timeoutMs >= 2 ** 31) {
      throw invalid("timeoutMs", "a whole number of milliseconds, 1 or more", timeoutMs);
    }
    this.#timeoutMs = timeoutMs;
    if (fail !== "open" && fail !== "closed") throw invalid("fail", '"open" or "closed"', fail);
    this.#fail = fail;
    if (typeof warn !== "function") throw invalid("warn", "a function", warn);
    this.#warn = warn;
  }

  async decide(question) {
    // Outside of `try`: a question that JSON cannot express must not pass when failing open.
    const body = JSON.stringify(question);
    let status, answer;
    try {
      ({ status, answer } = await this.#post("v1/decide", body));
    } catch (error) {
      return this.#failed(error.cause ?? error);
    }
    if (isDecision(answer)) return new Decision(answer, (units) => this.#settle(answer.id, units));
    // Any client can send a request about which Slidegate cannot be asked, so it never passes.
    if (status === 400 || status === 413) {
      this.#warn(`slidegate refused the question: ${status} ${answer?.detail}`);
      return new Decision(refusal("block", 400, "Bad Request", { reason: "bad-request" }));
    }
    return this.#failed(`${status} ${answer?.detail}`);
  }

  #failed(cause) {
    this.#warn(`slidegate gave no decision: ${cause}`);
    if (this.#fail === "open") return new Decision({ verdict: "allow", degraded: true });
    const answer = refusal("unavailable", 503, "Service Unavailable", { degraded: true });
    answer.headers["retry-after"] = "1";
    return new Decision(answer);
  }

  async #settle(id, units) {
    let status, answer;
    try {
      ({ status, answer } = await this.#post("v1/settle", JSON.stringify({ id, units })));
    } catch (error) {
      throw new SettleError(`slidegate did not settle: ${error.cause ?? error}`, undefined, { cause: error });
    }
    if (status !== 200) throw new SettleError(`slidegate did not settle: ${status} ${answer?.detail}`, status);
  }

  async #post(path, body) {
    const response = await fetch(new URL(path, this.#url), {
      method: "POST",
      headers: this.#headers,
      body,
      signal: AbortSignal.timeout(this.#timeoutMs),
    });
    return { status: response.status, answer: parseJson(await response.text()) };
  }
}

export class Decision {
  #settle;

  constructor(answer, settle) {
    this.verdict = answer.verdict;
    this.reason = answer.reason;
    this.retryAfterMs = answer.retry_after_ms;
    this.degraded = answer.degraded ?? false;
    this.status = answer.status ?? 200;
    this.headers = answer.headers ?? {};
    this.body = answer.body ?? "";
    // Without an id, nothing was spent that could be settled.
    this.#settle = answer.id === undefined ? async () => {} : settle;
  }

  get allowed() {
    return this.verdict === "allow";
  }

  settle(units) {
    return this.#settle(units);
  }

  refund() {
    return this.#settle(0);
  }
}

export class SettleError extends Error {
  name = "SettleError";

  constructor(message, status, options) {
    super(message, options);
    this.status = status;
  }
}

/** What all middlewares share: returns a function that asks about one request of a framework. */
export function asker({ describe = () => ({}), ...options } = {}) {
  if (typeof describe !== "function") throw invalid("describe", "a function", describe);
  const client = new Client(options);
  return async (request, question) => client.decide({ ...question, ...(await describe(request)) });
}

/** Headers without the pseudo-headers that HTTP/2 has among them, such as ":path". */
export function withoutPseudoHeaders(headers) {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !name.startsWith(":")));
}

function withDefaults(options) {
  for (const name of Object.keys(options)) {
    if (!Object.hasOwn(DEFAULTS, name)) throw new TypeError(`slidegate: unknown option ${JSON.stringify(name)}`);
  }
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  return { ...DEFAULTS, ...Object.fromEntries(given) };
}

function parseUrl(url) {
  let parsed;
  try {
    parsed = new URL(url);
  } catch {
    throw invalid("url", "an http or https URL", url);
  }
  if (!["http:", "https:"].includes(parsed.protocol)) throw invalid("url", "an http or https URL", url);
  // fetch refuses to send to these.
  if (parsed.username || parsed.password) throw new TypeError("slidegate: url must not contain a user or password");
  if (!parsed.pathname.endsWith("/")) parsed.pathname += "/";
  return parsed;
}

function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function isDecision(answer) {
  return answer?.verdict === "allow" || (typeof answer?.verdict === "string" && Number.isInteger(answer.status));
}

function refusal(verdict, status, body, more) {
  return { verdict, status, headers: { "content-type": "text/plain" }, body, ...more };
}

function invalid(name, expected, value) {
  return new TypeError(`slidegate: ${name} must be ${expected}, not ${JSON.stringify(value) ?? String(value)}`);
}
