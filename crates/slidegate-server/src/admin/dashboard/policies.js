// Policies: what each is for, what it allows, and how much of it is refused.

import { get } from "./api.js";
import { badge, bar, h, panel, row, table } from "./dom.js";
import { count, share } from "./format.js";

/** What becomes of requests that the store cannot count, by `on_store_error`. */
export const WITHOUT_STORE = {
  local: "counted by each gateway alone",
  allow: "let through uncounted",
  deny: "refused as unavailable",
};

export const title = () => "Policies";

export const load = () => get("v1/policies");

export function render({ policies, plans }) {
  const hasCandidates = policies.some(({ candidate }) => candidate);
  const columns = ["Policy", "Requests", "Counted for", "Quotas", ...(hasCandidates ? ["Candidate"] : []), "Without the store", "Refused"];
  const rows = policies.map((policy) => row(policy.policy, columns, [
    [h("b", {}, policy.policy), notes(policy)],
    matches(policy),
    policy.identity.join(", else "),
    quotas(policy, plans),
    ...(hasCandidates ? [candidate(policy)] : []),
    policy.scope === "local" ? "does not need it" : WITHOUT_STORE[policy.on_store_error],
    refusals(policy),
  ]));
  return [
    h("h1", {}, "Policies"),
    panel("Policies in force", table("Policies", columns, rows, "There are no policies: every request passes."),
      h("p", { class: "note" }, "Refused is the share since the start of this gateway.")),
    plans.length > 0 && panel("Plans", planTable(plans)),
  ];
}

function matches({ methods, paths, descriptors, given_quotas: given }) {
  if (descriptors) return `descriptors ${descriptors}`;
  if (given) return "what Redis clients charge by name";
  if (methods.length === 0 && paths.length === 0) return "every request";
  const method = methods.length > 0 ? methods.join(", ") : "every method";
  return [method, paths.length > 0 ? h("ul", { class: "plain" }, paths.map((path) => h("li", {}, h("code", {}, path)))) : " of every path"];
}

function quotas({ quotas: own, plans: choice, given_quotas: given }, plans) {
  if (given) return "as the charge says";
  if (!choice) return own.join(" and ");
  const by = choice.header ? `by plan in ${choice.header}` : "by plan";
  const each = plans.map(({ plan, quotas: of }) => h("li", {}, h("b", {}, plan), ` ${of.join(" and ")}`, plan === choice.default && badge("note", "default")));
  return [by, h("ul", { class: "plain" }, each)];
}

function candidate({ candidate: one, decided }) {
  if (!one) return "–";
  const all = decided.allowed + decided.refused;
  return [one.join(" and "), h("span", { class: "note" }, `would refuse ${count(decided.candidate)} more, ${share(decided.candidate, all)}`)];
}

/** Whatever is not as by default. */
function notes({ shadow, scope, lease, count_denied: counts, ban, cost, in_headers: shown }) {
  const words = [
    shadow && badge("warn", "shadow: refuses nothing"),
    scope === "local" && badge("note", "in this process"),
    lease && badge("note", `leases of ${lease}`),
    cost > 1 && badge("note", `${cost} units a request`),
    counts && badge("note", "counts refused requests"),
    ban && badge("note", `bans for ${ban.for} after ${ban.after}`),
    !shown && !shadow && badge("note", "not in headers"),
  ];
  return h("div", { class: "badges" }, words);
}

function refusals({ decided, shadow }) {
  const refused = shadow ? decided.shadow : decided.refused;
  const all = decided.allowed + refused;
  const words = `${share(refused, all)} of ${count(all)}`;
  return [bar(refused, all, words, "full"), shadow && h("span", { class: "note" }, "would be refused"), decided.failed > 0 && h("span", { class: "note" }, `${count(decided.failed)} not counted`)];
}

function planTable(plans) {
  const columns = ["Plan", "Quotas", "Upgrade"];
  const rows = plans.map((one) => row(one.plan, columns, [h("b", {}, one.plan), one.quotas.join(" and "), one.upgrade_url ?? "–"]));
  return table("Plans", columns, rows, "");
}
