// Try: a request in, which policies match and why, and what would be decided now. Nothing is spent.

import { get, post } from "./api.js";
import { badge, bar, h, panel, row, table } from "./dom.js";
import { accountLink, count, period } from "./format.js";

const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
const VERDICTS = { allow: ["good", "would be allowed"], deny: ["bad", "would be refused"], block: ["bad", "would be refused"], unavailable: ["bad", "would be refused as unavailable"] };

let result = null;
let problem = "";
let redraw = () => {};

export const title = () => "Try";

export const load = () => get("v1/policies");

export function render({ plans }, _, context) {
  redraw = context.redraw;
  const field = (name, words, attributes) => h("label", {}, words, h("input", { name, autocomplete: "off", spellcheck: "false", ...attributes }));
  return [
    h("h1", {}, "Try"),
    h("div", { class: "columns try" },
      panel("A request", h("form", { id: "try" },
        h("label", {}, "Method", h("select", { name: "method" }, METHODS.map((method) => h("option", {}, method)))),
        field("path", "Path", { value: "/", required: true }),
        field("client", "Client address", { placeholder: "203.0.113.7" }),
        h("label", { class: "all" }, "Headers, one a line", h("textarea", { name: "headers", rows: 3, spellcheck: "false", placeholder: "x-api-key: k-123" })),
        field("user", "User, as an application names it", {}),
        field("customer", "Customer, as a key or token names it", {}),
        h("label", {}, "Plan", h("select", { name: "plan" }, h("option", { value: "" }, "as the request has it"), plans.map(({ plan }) => h("option", {}, plan)))),
        field("cost", "Cost in units", { type: "number", min: 1, placeholder: "1" }),
        field("peer", "Address of the connection’s peer", { placeholder: "a proxy of yours" }),
        h("p", { class: "problem all", role: "alert" }, problem),
        h("p", { class: "buttons all" }, h("button", { class: "primary" }, "Try it")))),
      h("div", { class: "stack", "aria-live": "polite" }, result ? outcome(result) : panel("Result", h("p", { class: "empty" }, "Nothing is sent upstream and nothing is spent.")))),
  ];
}

function outcome({ client, credentials, other_paths: paths, blocked, exempt, policies, decision }) {
  const [kind, words] = VERDICTS[decision.verdict] ?? ["note", decision.verdict];
  const columns = ["Policy", "For it", "Why"];
  const rows = policies.map(({ policy, identity, effect }) => row(policy, columns, [
    h("b", {}, policy),
    identity ? h("a", { href: accountLink(identity), class: "identity" }, identity) : badge("note", "no"),
    effect,
  ]));
  return [
    panel("Result",
      h("p", { id: "verdict" }, badge(kind, words), decision.status && ` with status ${decision.status}`, decision.reason && ` (${decision.reason})`, decision.retry_after_ms && `, may return after ${period(decision.retry_after_ms)}`),
      h("dl", { class: "facts" },
        h("dt", {}, "Client"), h("dd", {}, client),
        credentials && [h("dt", {}, "Credentials"), h("dd", {}, credentials.join("; "))],
        paths && [h("dt", {}, "Path also read as"), h("dd", {}, paths.join(", "))],
        blocked && [h("dt", {}, "Blocked"), h("dd", {}, blocked)],
        exempt && [h("dt", {}, "Exempt"), h("dd", {}, exempt)])),
    panel("Policies", table("Policies", columns, rows, "The request is refused before policies are matched.")),
    decision.standings.length > 0 && panel("Where it stands now", standings(decision.standings)),
    panel("Headers of the response", table("Headers", ["Name", "Value"], Object.entries(decision.headers).map(([name, value]) => row(name, ["Name", "Value"], [name, value])), "None.")),
  ];
}

function standings(all) {
  const columns = ["Policy", "Window", "Spent", "Would pass"];
  return table("Standings", columns, all.map((one, i) => row(`${one.policy} ${i}`, columns, [
    [one.policy, one.shadow && badge("note", "shadow")],
    period(one.window_ms),
    bar(one.units - one.remaining, one.units, `${count(one.units - one.remaining)} of ${count(one.units)}`),
    one.violated ? badge("bad", `no, in ${period(one.retry_after_ms)}`) : badge("good", "yes"),
  ])), "");
}

/** The headers, one a line, as an object of lists. */
function headers(text) {
  const all = {};
  for (const line of text.split("\n").filter((one) => one.trim())) {
    const colon = line.indexOf(":");
    if (colon < 1) throw new Error(`expected a header such as “x-api-key: k”, not “${line.trim()}”`);
    const name = line.slice(0, colon).trim().toLowerCase();
    (all[name] ??= []).push(line.slice(colon + 1).trim());
  }
  return all;
}

function request({ elements }) {
  const body = { method: elements.method.value, path: elements.path.value, headers: headers(elements.headers.value) };
  for (const name of ["client", "peer", "user", "customer", "plan"]) {
    if (elements[name].value.trim()) body[name] = elements[name].value.trim();
  }
  if (elements.cost.value) body.cost = Number(elements.cost.value);
  return body;
}

document.addEventListener("submit", async (event) => {
  if (event.target.id !== "try") return;
  event.preventDefault();
  problem = "";
  try {
    result = await post("v1/explain", request(event.target));
  } catch (error) {
    problem = error.message;
  }
  redraw();
});
