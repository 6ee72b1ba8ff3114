// Accounts: those nearest to a quota, those refused most, and overrides; searched by identity or name.

import { Problem, account, get, keyNamed } from "./api.js";
import { badge, bar, h, panel, row, table } from "./dom.js";
import { accountLink, count, period, time } from "./format.js";

/** The server makes such a list once for all pages that ask within two seconds. */
const LIST = "limit=50&max_age_ms=2000";

let filter = "";
let problem = "";
let redraw = () => {};

export const title = () => "Accounts";

export async function load() {
  const [nearest, denied, overrides, { policies }] = await Promise.all([
    get(`v1/accounts?sort=nearest&${LIST}`),
    get(`v1/accounts?sort=denied&${LIST}`),
    get("v1/overrides"),
    get("v1/policies"),
  ]);
  const hasCandidates = policies.some(({ candidate }) => candidate);
  const candidate = hasCandidates ? await get(`v1/accounts?sort=candidate&${LIST}`) : null;
  return { nearest: nearest.accounts, denied: denied.accounts, candidate: candidate?.accounts, overrides };
}

export function render({ nearest, denied, candidate, overrides }, _, context) {
  redraw = context.redraw;
  const fits = ({ identity, policy, plan }) => [identity, policy, plan].some((text) => text?.toLowerCase().includes(filter.toLowerCase()));
  const none = (words) => (filter ? `None of them has “${filter}” in it. Enter looks it up.` : words);
  return [
    h("h1", {}, "Accounts"),
    h("form", { class: "search", role: "search", id: "search" },
      h("label", { for: "query" }, "Identity or name of an API key"),
      h("input", { id: "query", type: "search", value: filter, placeholder: "203.0.113.7, user:42, api-key:NAME", autocomplete: "off", spellcheck: "false" }),
      h("button", { class: "primary" }, "Open"),
      h("p", { class: "problem", role: "alert" }, problem)),
    h("div", { class: "columns" },
      panel("Nearest to a quota", accountTable("Accounts nearest to a quota", nearest.filter(fits), none("No account has spent half of a quota."))),
      h("div", { class: "stack" },
        panel("Refused most", accountTable("Accounts refused most", denied.filter(fits), none("No account was refused recently."), true),
          h("p", { class: "note" }, "Recent refusals: the count is halved every ten minutes.")),
        candidate && panel("Refused most if candidates were in force", accountTable("Accounts that candidates would refuse", candidate.filter(fits), none("No account would be refused."), true)))),
    panel("Overrides in force", overrides.stale && h("p", { class: "problem" }, "Redis cannot be read: there may be others."),
      overrideTable(overrides.overrides.filter(fits), none("There are none."))),
  ];
}

function accountTable(caption, accounts, empty, hasDenials = false) {
  const columns = ["Identity", "Policy", "Used", ...(hasDenials ? ["Refused"] : [])];
  return table(caption, columns, accounts.map((one) => row(`${one.policy} ${one.identity}`, columns, [
    [h("a", { href: accountLink(one.identity), class: "identity" }, one.identity), states(one)],
    [one.policy, one.plan && h("span", { class: "note" }, `plan ${one.plan}`)],
    tightest(one),
    ...(hasDenials ? [[count(one.denials), one.denials_overcount > 0 && h("span", { class: "note" }, `up to ${count(one.denials_overcount)} too many`)]] : []),
  ])), empty);
}

function tightest({ quotas }) {
  const used = (quota) => quota.spent / quota.units;
  const [most] = [...quotas].sort((a, b) => used(b) - used(a));
  return most ? bar(most.spent, most.units, `${count(most.spent)} of ${most.quota}`) : "–";
}

/** What an operator or a ban has changed. */
export function states({ banned_for_ms: banned, exempt_for_ms: exempt, quotas, shadow, degraded, candidate }) {
  return h("span", { class: "badges" },
    banned !== undefined && badge("bad", `banned, ${period(banned)} left`),
    exempt !== undefined && badge("good", `exempt, ${period(exempt)} left`),
    quotas.filter(({ granted }) => granted > 0).map(({ granted, quota }) => badge("good", `${count(granted)} of ${quota} granted`)),
    shadow && badge("warn", "shadow"),
    candidate?.some(({ violated }) => violated) && badge("warn", "its candidate would refuse"),
    degraded && badge("warn", "as known without Redis"));
}

export function overrideTable(overrides, empty) {
  const columns = ["What", "Identity", "Policy", "Until", "Reason", ""];
  return table("Overrides", columns, overrides.map((one) => row(one.id, columns, [
    badge(one.action === "ban" ? "bad" : "good", one.units ? `${one.action} +${count(one.units)}${one.quota === "all" ? "" : ` per ${one.quota}`}` : one.action),
    h("a", { href: accountLink(one.identity), class: "identity" }, one.identity),
    one.policy ?? "all",
    [time(one.until), h("span", { class: "note" }, `in ${period(one.ends_in_ms)}`)],
    [one.reason, h("span", { class: "note" }, [`${time(one.created)}`, one.by && ` by ${one.by}`])],
    h("button", { type: "button", "data-act": "lift", "data-identity": one.identity, "data-id": one.id, "data-kind": one.action }, "Lift"),
  ])), empty);
}

/** What was typed, as the identity to ask for. What may be an API key is sent as a digest. */
async function identityOf(text) {
  if (/^(everyone|anonymous)$/.test(text)) return text;
  if (/^[0-9.]+(\/\d+)?$/.test(text) || /^[0-9a-f]*:[0-9a-f:.]*(\/\d+)?$/i.test(text)) return `ip:${text}`;
  const key = text.startsWith("api-key:") ? text.slice("api-key:".length) : text;
  if (key === text && text.includes(":")) return text;
  return /^~?[0-9a-f]{32}$/.test(key) ? `api-key:${key}` : keyNamed(key);
}

async function find(text) {
  const asked = await identityOf(text);
  try {
    return (await get(account(asked))).identity;
  } catch (error) {
    if (!(error instanceof Problem) || !asked.startsWith("api-key:")) throw error;
    throw new Problem(error.status, "No API key has this name. For a user, type user: before it.");
  }
}

document.addEventListener("input", (event) => {
  if (event.target.id !== "query") return;
  filter = event.target.value.trim();
  problem = "";
  redraw();
});

document.addEventListener("submit", async (event) => {
  if (event.target.id !== "search") return;
  event.preventDefault();
  const text = event.target.querySelector("input").value.trim();
  if (!text) return;
  try {
    location.hash = accountLink(await find(text));
    filter = "";
  } catch (error) {
    problem = error.message;
    redraw();
  }
});
