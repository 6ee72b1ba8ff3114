// Now: what is decided, how fast, by which gateways, and how the store is.

import { get } from "./api.js";
import { chart, latest, legend, sparkline } from "./chart.js";
import { badge, bar, h, panel, row, table } from "./dom.js";
import { count, list, microseconds, period, plural, rate, time } from "./format.js";
import { WITHOUT_STORE } from "./policies.js";

/** Fifteen minutes, in steps of the server. */
const LENGTH_MS = 15 * 60 * 1000;
const MINUTE_MS = 60 * 1000;
const ALL = "";

const KINDS = [
  ["allowed", "Allowed"],
  ["refused", "Refused"],
  ["shadow", "Shadow"],
  ["candidate", "Candidate"],
  ["failed", "Failed"],
];


/** The policy of the chart, and the lines that are not wanted. */
let chosen = ALL;
const hidden = new Set();
let redraw = () => {};

export const title = () => "Now";

export const load = () => get("v1/policies");

export function render({ policies }, _, context) {
  const { now } = context;
  redraw = context.redraw;
  if (!now) return [h("h1", {}, "Now")];
  const steps = Math.round(LENGTH_MS / now.step_ms);
  const kinds = kindsOf(now, policies);
  if (!now.policies.some(({ policy }) => policy === chosen)) chosen = ALL;
  return [
    h("h1", {}, "Now"),
    now.gateways.length > 1 && h("p", { class: "note", "data-key": "scope" },
      `Figures are of this gateway, ${thisGateway(now)}. ${plural(now.gateways.length, "gateway")} share accounts, bans and overrides.`),
    figures(now, kinds),
    h("div", { class: "columns wide" },
      decisions(now, kinds, steps, policies),
      h("div", { class: "stack" }, times(now, steps), store(now, policies), server(now), gateways(now))),
  ];
}

/** Candidates are shown only if there are any. */
function kindsOf(now, policies) {
  const hasCandidates = policies.some(({ candidate }) => candidate) || sum(total(now).candidate) > 0;
  return KINDS.filter(([kind]) => kind !== "candidate" || hasCandidates);
}

function figures(now, kinds) {
  const all = total(now);
  const requests = [["allowed", "Requests allowed"], ["refused", "Requests refused"]];
  const tiles = requests.map(([kind, name]) => tile(kind, name, `${rate(perSecond(now.requests[kind], now))}/s`, most(kind, now)));
  const watched = kinds.filter(([kind]) => !(kind in now.requests));
  tiles.push(...watched.map(([kind, name]) => tile(kind, `${name} decisions`, `${rate(perSecond(all[kind], now))}/s`, most(kind, now))));
  const { p50_us: p50, p99_us: p99 } = now.decision_time;
  tiles.push(tile("p50", "Decision time p50", microseconds(latest(p50)), "half are faster"));
  tiles.push(tile("p99", "Decision time p99", microseconds(latest(p99)), "99 of 100 are faster"));
  return h("dl", { class: "tiles" }, tiles);
}

const thisGateway = ({ gateways }) => gateways.find((one) => one.this)?.name ?? "";

/** The policy that has most of them in the last minute. */
function most(kind, now) {
  const [first] = now.policies.map(({ policy, [kind]: values }) => [perSecond(values, now), policy]).sort(([a], [b]) => b - a);
  return kind !== "allowed" && first?.[0] > 0 ? `most by ${first[1]}` : "in the last minute";
}

const tile = (key, name, value, note) =>
  h("div", { class: "tile", "data-key": key }, h("dt", {}, name), h("dd", {}, value), h("dd", { class: "note" }, note));

function decisions(now, kinds, steps, policies) {
  const all = { policy: ALL, ...total(now) };
  const each = [all, ...now.policies];
  const shown = each.find(({ policy }) => policy === chosen) ?? all;
  const seconds = now.step_ms / 1000;
  const series = kinds.map(([kind, name]) => ({ kind, name, values: shown[kind].map((number) => number / seconds) }));
  const columns = ["Policy", "15 minutes", ...kinds.map(([, name]) => name)];
  const shadows = new Set(policies.filter(({ shadow }) => shadow).map(({ policy }) => policy));
  const rows = each.map((one) => row(one.policy || "all", columns, [
    [h("button", { type: "button", class: "link", "data-policy": one.policy, "aria-pressed": String(one.policy === chosen) }, one.policy || "All policies"),
      shadows.has(one.policy) && badge("note", "shadow")],
    sparkline(kinds.map(([kind]) => ({ kind, values: one[kind] })), steps, `${one.policy || "all policies"} over 15 minutes`),
    ...kinds.map(([kind]) => [
      h("b", { class: sum(one[kind]) > 0 ? kind : null }, `${rate(perSecond(one[kind], now))}/s`),
      h("span", { class: "note", "data-total": kind }, count(sum(one[kind])))]),
  ]));
  return panel("Decisions",
    chart({ title: `${chosen || "All policies"}, per second`, series: series.filter(({ kind }) => !hidden.has(kind)), stepMs: now.step_ms, steps, format: (value) => rate(value ?? 0) }),
    legend(series, (value) => `${rate(value ?? 0)}/s`, hidden),
    h("div", { class: "dense" }, table("Decisions by policy", columns, rows, "There are no policies.")),
    h("p", { class: "note" }, "Rates are of the last minute, counts of fifteen. A request is decided by each policy that it falls under, so there are more decisions than requests."));
}

function times(now, steps) {
  const { p50_us: p50, p99_us: p99 } = now.decision_time;
  const series = [{ kind: "p99", name: "p99", values: p99 }, { kind: "p50", name: "p50", values: p50 }];
  return panel("Decision time", chart({ title: "Per decision", series, stepMs: now.step_ms, steps, format: (value) => microseconds(value ?? 0) }),
    h("p", { class: "note" }, "p99 is the solid line, p50 the dashed one."));
}

function store({ store: now }, policies) {
  const facts = [["State", now.state === "ready" ? badge("good", "ready") : [badge("bad", now.state), " ", now.reason ?? ""]]];
  if (now.url) facts.push(["Address", now.url]);
  if (now.breaker) facts.push(["Circuit breaker", now.breaker === "closed" ? "closed: Redis is asked" : badge("bad", now.breaker)]);
  if (now.decided_locally !== undefined) facts.push(["Decided without it", `${count(now.decided_locally)} since the start`]);
  if (now.capacity) facts.push(["Accounts", bar(now.accounts, now.capacity, `${count(now.accounts)} of ${count(now.capacity)}`)]);
  const shared = policies.filter(({ scope }) => scope === "shared");
  const without = Object.entries(WITHOUT_STORE).map(([action, words]) => {
    const names = shared.filter(({ on_store_error: on }) => on === action).map(({ policy }) => policy);
    return names.length > 0 && h("div", {}, h("b", {}, list(names)), ` ${words}`);
  });
  facts.push([now.kind === "redis" ? "Without Redis" : "If it is full", without]);
  return panel(`Store: ${now.kind}`, definitions(facts));
}

function server({ started, at, reload, version }) {
  const needed = reload.restart_needed.map((section) => `[${section}]`);
  return panel("This gateway", definitions([
    ["Version", version],
    ["Running for", period(new Date(at) - new Date(started))],
    ["Configuration read", [time(reload.last), reload.failures > 0 && [" ", badge("warn", `${plural(reload.failures, "reload")} failed since`)]]],
    ["Restart needed", needed.length > 0 ? [badge("warn", "yes"), ` for ${list(needed)}`] : "no"],
  ]));
}

function gateways({ gateways: all, store: { kind } }) {
  const columns = ["Gateway", "Version", "Started", "Seen"];
  const rows = all.map((one) => row(`${one.name} ${one.started}`, columns, [
    [one.name, one.this && badge("note", "this one")], one.version, time(one.started), one.this ? "now" : `${period(one.seen_ms)} ago`]));
  const words = kind === "redis" ? `${plural(all.length, "gateway")} known on this Redis` : "Gateways";
  return panel(words, table("Gateways", columns, rows, "None."));
}

const definitions = (facts) => h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

/** All policies together, in each step. */
function total({ policies }) {
  const add = (kind) => policies.reduce((sums, one) => one[kind].map((number, i) => number + (sums[i] ?? 0)), []);
  return Object.fromEntries(KINDS.map(([kind]) => [kind, add(kind)]));
}

const sum = (values) => values.reduce((all, one) => all + one, 0);

function perSecond(values, { step_ms: step }) {
  const recent = values.slice(-MINUTE_MS / step);
  return recent.length === 0 ? 0 : sum(recent) / ((recent.length * step) / 1000);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-policy], [data-series]");
  if (!button) return;
  const { policy, series } = button.dataset;
  if (policy !== undefined) chosen = policy;
  else if (!hidden.delete(series)) hidden.add(series);
  redraw();
});
