// Calls of the admin API, with the token if there is one.

const KEY = "slidegate-token";
const TIMEOUT_MS = 10000;

/** The server did not answer. */
export class Unreachable extends Error {}

/** The server refused, and says why. */
export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

export const get = (path) => call("GET", path);
export const post = (path, body) => call("POST", path, body);
export const remove = (path, body) => call("DELETE", path, body);

/** The path of an account. */
export const account = (identity, rest = "") =>
  `v1/accounts/${encodeURIComponent(identity)}${rest}`;

async function call(method, path, body) {
  const headers = { accept: "application/json" };
  if (token.get()) headers.authorization = `Bearer ${token.get()}`;
  if (body) headers["content-type"] = "application/json";
  const options = { method, headers, cache: "no-store", redirect: "error" };
  if (body) options.body = JSON.stringify(body);
  const [status, answer] = await send(path, options);
  if (status >= 200 && status < 300) return answer;
  throw new Problem(status, answer?.detail ?? `the server answered with status ${status}`);
}

async function send(path, options) {
  try {
    const response = await fetch(path, { ...options, signal: AbortSignal.timeout(TIMEOUT_MS) });
    const text = await response.text();
    return [response.status, parse(text)];
  } catch (error) {
    throw new Unreachable(error.message);
  }
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/**
 * What was typed as an API key's name: it may be the key itself, by mistake, so only a digest of it
 * is sent, as `slidegate inspect` does. The browser digests on this machine and over TLS only.
 */
export async function keyNamed(name) {
  if (!globalThis.crypto?.subtle) return `api-key:${name}`;
  const bytes = new TextEncoder().encode(`slidegate\0api-key\0${name}`);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)).slice(0, 16);
  const hex = [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return `api-key:~${hex}`;
}
