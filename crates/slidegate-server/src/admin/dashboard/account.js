// One account: its quotas, the density of its windows, its overrides and its last audit lines.

import { overrideTable, states } from "./accounts.js";
import { account, get } from "./api.js";
import { density } from "./density.js";
import { badge, bar, h, panel, row, table } from "./dom.js";
import { count, period, time } from "./format.js";

const ACTIONS = [["reset", "Reset"], ["grant", "Grant units"], ["exempt", "Exempt"], ["ban", "Ban"]];

/** The server reads a file for it, so it is asked for less often than the rest. */
const TRAIL_AGE_MS = 20000;
let trailOf = null;

/** Something was done: there is a new line. */
export const forget = () => {
  trailOf = null;
};

async function auditTrail(identity) {
  const isKnown = trailOf?.identity === identity && Date.now() - trailOf.at < TRAIL_AGE_MS;
  if (!isKnown) trailOf = { identity, at: Date.now(), audit: await get(account(identity, "/audit")) };
  return trailOf.audit;
}

export const title = (identity) => identity || "Account";

export async function load(identity) {
  const [standing, windows, audit] = await Promise.all([
    get(account(identity)),
    get(account(identity, "/density")),
    auditTrail(identity),
  ]);
  return { standing, windows, audit };
}

export function render({ standing, windows, audit }) {
  const { identity, accounts, overrides } = standing;
  const windowNames = [...new Set(accounts.flatMap(({ quotas }) => quotas.map(({ quota }) => quota.split("/")[1])))];
  return [
    h("p", { class: "back" }, h("a", { href: "#/accounts" }, "← Accounts")),
    h("h1", { class: "identity" }, identity),
    h("p", { class: "buttons", id: "actions" }, ACTIONS.map(([action, words]) =>
      h("button", { type: "button", "data-act": action, "data-identity": identity, "data-windows": windowNames.join(" "), class: action === "ban" ? "danger" : null }, words))),
    accounts.length === 0 && h("p", { class: "empty" }, "No policy counts such an identity."),
    h("div", { class: "cards" }, accounts.map((one) => card(one, windows.accounts.find(({ policy }) => policy === one.policy)))),
    panel("Overrides", overrideTable(overrides, "None: its quotas are as configured.")),
    panel("Audit trail", trail(audit)),
  ];
}

function card(one, window) {
  const policy = one.plan ? `${one.policy}, plan ${one.plan}` : one.policy;
  return h("section", { class: "panel", "data-key": one.policy, "aria-label": `Policy ${policy}` },
    h("h2", {}, `Policy ${policy} `, states(one)),
    one.quotas.map((quota, i) => h("div", { class: "quota" },
      h("h3", {}, quota.quota),
      bar(quota.spent, quota.units, `${count(quota.spent)} of ${count(quota.units)} spent, ${count(quota.remaining)} left`),
      window?.quotas[i] && density(window.quotas[i], window.at, `${policy}, ${quota.quota}`))),
    one.candidate?.map((quota) => h("div", { class: "quota" },
      h("h3", {}, `Candidate ${quota.quota} `, quota.violated && badge("warn", "would refuse")),
      bar(quota.units - quota.remaining, quota.units, `${count(quota.units - quota.remaining)} of ${count(quota.units)}, not enforced`))));
}

function trail({ audited, lines, since }) {
  if (!audited) return h("p", { class: "empty" }, "There is no audit trail: the configuration has no [audit].");
  const columns = ["Time", "What", "Details"];
  const rows = lines.map((line, i) => row(`${line.time} ${i}`, columns, [time(line.time), what(line), details(line)]));
  return [
    table("Audit trail", columns, rows, "Nothing about it."),
    since && h("p", { class: "note" }, `Looked back to ${time(since)}.`),
  ];
}

function what({ event, verdict, action, outcome }) {
  if (event === "decision") return badge({ allow: "good", recorded: "note" }[verdict] ?? "bad", verdict);
  if (event === "operator") return badge("note", outcome === "done" ? action : `${action} ${outcome}`);
  return badge("note", event);
}

function details(line) {
  if (line.event === "operator") {
    return [line.reason, line.units && ` +${line.units}`, line.quota && (line.quota === "all" ? " to each quota" : ` per ${line.quota}`), line.until && ` until ${time(line.until)}`, line.policy && ` under ${line.policy}`, line.by && ` by ${line.by}`, line.problem && `: ${line.problem}`];
  }
  if (line.event !== "decision") return line.outcome ?? "";
  const denied = (line.policies ?? []).filter(({ quotas }) => quotas.some((quota) => quota.retry_after_ms > 0));
  const by = line.banned_by ?? denied.map(({ policy }) => policy).join(", ");
  return [`${line.method} ${line.path}: ${line.status}`, by && `, by ${by}`, line.reason && ` (${line.reason})`, line.retry_after_ms && `, may return after ${period(line.retry_after_ms)}`];
}
