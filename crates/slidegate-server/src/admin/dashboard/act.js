// Act: a dialog that says what will happen, and does it if it is confirmed.

import { account, post, remove } from "./api.js";
import { h, show } from "./dom.js";
import { count, period, plural, time } from "./format.js";

const LENGTHS = [["15min", "15 minutes", 900], ["1h", "1 hour", 3600], ["4h", "4 hours", 14400], ["1d", "1 day", 86400], ["7d", "7 days", 604800]];

const TITLES = { reset: "Reset", grant: "Grant units to", exempt: "Exempt", ban: "Ban", lift: "Lift the" };
const BUTTONS = { reset: "Reset", grant: "Grant", exempt: "Exempt", ban: "Ban", lift: "Lift" };

const dialog = document.getElementById("act");
const outcome = document.getElementById("outcome");

/** Asks about an action of a button, whose data is given. */
export function act(wanted, now, refresh) {
  const policies = (now?.policies ?? []).map(({ policy }) => policy);
  const reach = where(now);
  show(dialog, form(wanted, policies));
  const fields = dialog.querySelector("form");
  fields.reset();
  const explain = () => {
    const isInstant = fields.elements.for?.value === "until";
    if (fields.elements.until) fields.elements.until.closest("label").hidden = !isInstant;
    if (fields.elements.until) fields.elements.until.required = isInstant;
    fields.querySelector(".effect").textContent = effect(wanted, read(fields), reach);
  };
  fields.oninput = explain;
  fields.onsubmit = async (event) => {
    event.preventDefault();
    await carryOut(wanted, read(fields), refresh);
  };
  fields.querySelector("[data-cancel]").onclick = () => dialog.close();
  explain();
  dialog.showModal();
}

function form({ act: action, identity, kind, windows }, policies) {
  const hasEnd = ["grant", "exempt", "ban"].includes(action);
  const subject = action === "lift" ? `${kind} on ${identity}` : identity;
  return h("form", { method: "dialog", "data-key": `${action} ${subject}` },
    h("h2", { id: "act-title" }, `${TITLES[action]} ${subject}`),
    action === "grant" && h("label", {}, "Units to add", h("input", { name: "units", type: "number", min: 1, max: 4294967295, value: 100, required: true })),
    action === "grant" && h("label", {}, "To the quota", quotaChoice(windows)),
    hasEnd && h("label", {}, "For", h("select", { name: "for" },
      LENGTHS.map(([value, words]) => h("option", { value, selected: value === "1h" }, words)),
      h("option", { value: "until" }, "until an instant"))),
    hasEnd && h("label", { hidden: true }, "Until", h("input", { name: "until", type: "datetime-local" })),
    action !== "lift" && h("label", {}, "Under", h("select", { name: "policy" },
      h("option", { value: "" }, "all policies"), policies.map((policy) => h("option", { value: policy }, policy)))),
    h("label", {}, "Reason", h("input", { name: "reason", required: true, maxlength: 200, autocomplete: "off", autofocus: true, placeholder: "such as a ticket" })),
    h("p", { class: "effect", "aria-live": "polite" }),
    h("p", { class: "problem", role: "alert" }),
    h("p", { class: "buttons" },
      h("button", { type: "button", "data-cancel": true }, "Cancel"),
      h("button", { class: action === "ban" ? "danger" : "primary", id: "confirm" }, BUTTONS[action])));
}

/** A grant with several quotas to choose from has no default. */
function quotaChoice(windows) {
  const names = (windows ?? "").split(" ").filter(Boolean);
  return h("select", { name: "quota", required: true },
    names.length > 1 && h("option", { value: "" }, "choose one"),
    names.map((window) => h("option", { value: window }, `per ${window}`)),
    h("option", { value: "all" }, "all of them"));
}

/** The fields, as the API wants them. */
function read({ elements }) {
  const body = { reason: elements.reason.value.trim() };
  if (elements.policy?.value) body.policy = elements.policy.value;
  if (elements.units) body.units = Number(elements.units.value);
  if (elements.quota?.value) body.quota = elements.quota.value;
  if (elements.for?.value === "until") {
    const end = new Date(elements.until.value);
    body.until = Number.isNaN(end.getTime()) ? "" : end.toISOString();
  } else if (elements.for) {
    body.for = elements.for.value;
  }
  return body;
}

/** What will happen, in a sentence. */
function effect({ act: action, identity, kind }, { policy, units, quota, until, for: length }, reach) {
  const seconds = LENGTHS.find(([value]) => value === length)?.[2];
  const end = seconds ? Date.now() + seconds * 1000 : until;
  const till = end ? `until ${time(end)}` : "until the instant that you choose";
  const under = policy ? ` under policy ${policy}` : "";
  return {
    ban: `Every request of ${identity}${under} is refused from now ${till}, ${reach}.`,
    exempt: `Every request of ${identity}${under} passes uncounted ${till}, ${reach}.`,
    grant: `${quota && quota !== "all" ? `The quota per ${quota}` : "Each quota"} of ${identity}${under} has ${plural(units || 0, "unit")} more ${till}, ${reach}.`,
    reset: `What ${identity} has spent${under} is forgotten, and bans that a policy began end, ${reach}. Overrides stay.`,
    lift: `The ${kind} on ${identity} ends now, ${reach}.`,
  }[action];
}

function where(now) {
  const gateways = now?.gateways.length ?? 1;
  return now?.store.kind === "redis" && gateways > 1 ? `at all ${gateways} gateways within a second` : "at this gateway";
}

async function carryOut(wanted, body, refresh) {
  const button = dialog.querySelector("#confirm");
  const problem = dialog.querySelector(".problem");
  button.disabled = true;
  problem.textContent = "";
  try {
    outcome.textContent = await send(wanted, body);
    dialog.close();
    refresh();
  } catch (error) {
    problem.textContent = error.message;
  }
  button.disabled = false;
}

async function send({ act: action, identity, id, kind }, body) {
  if (action === "lift") {
    await remove(`v1/overrides/${encodeURIComponent(id)}`, body);
    return `The ${kind} on ${identity} is lifted.`;
  }
  const done = await post(account(identity, `/${action}`), body);
  if (action === "reset") {
    const spent = done.policies.filter((policy) => !done.nothing_spent.includes(policy));
    return spent.length > 0 ? `${identity} is reset under ${spent.join(", ")}.` : `${identity} had spent nothing.`;
  }
  const { until, units, quota, ends_in_ms: left } = done.override;
  const end = `until ${time(until)}, for ${period(left)}`;
  return { ban: `${identity} is banned ${end}.`, exempt: `${identity} is exempt ${end}.`, grant: `${identity} has ${count(units ?? 0)} more ${quota === "all" ? "in each quota" : `per ${quota}`} ${end}.` }[action];
}
