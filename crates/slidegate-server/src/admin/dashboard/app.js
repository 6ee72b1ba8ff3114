// The page: which view is shown, when it asks the server, and what the server's state is.

import * as account from "./account.js";
import * as accounts from "./accounts.js";
import { act } from "./act.js";
import { Problem, Unreachable, get, token } from "./api.js";
import { h, show } from "./dom.js";
import { list, time } from "./format.js";
import * as now from "./now.js";
import * as policies from "./policies.js";
import * as tryOut from "./try.js";

const VIEWS = { now, policies, accounts, account, try: tryOut };
const PAUSE_MS = 5000;
const RETRIES_MS = [1000, 2000, 4000, 8000];

const $ = (id) => document.getElementById(id);

/** What is known of the server. */
const state = { now: null, lostSince: null, failures: 0, wanted: 0 };
let timer = null;

/** The view in the address, and what follows it there. */
function route() {
  const [, name, ...rest] = location.hash.split("/");
  const known = Object.hasOwn(VIEWS, name) ? name : "now";
  let argument = rest.join("/");
  try {
    argument = decodeURIComponent(argument);
  } catch {
    // As it was typed.
  }
  return { name: known, view: VIEWS[known], argument };
}

/** Asks for everything that the view shows, and shows it. Only the last call counts. */
async function refresh() {
  clearTimeout(timer);
  if (document.visibilityState !== "visible" || $("token").open) return;
  const turn = ++state.wanted;
  const { view, argument } = route();
  const [status, data] = await Promise.allSettled([get("v1/now"), view.load(argument)]);
  if (turn !== state.wanted) return;
  const failures = [status, data].filter((one) => one.status === "rejected").map((one) => one.reason);
  if (failures.some((error) => error instanceof Problem && error.status === 401)) return askForToken();
  const isLost = failures.some((error) => error instanceof Unreachable);
  if (isLost) {
    state.lostSince ??= Date.now();
    state.failures += 1;
  } else {
    state.lostSince = null;
    state.failures = 0;
    if (status.status === "fulfilled") state.now = status.value;
    draw(view, argument, data);
  }
  drawStatus();
  const pause = isLost ? RETRIES_MS[Math.min(state.failures, RETRIES_MS.length) - 1] : PAUSE_MS;
  timer = setTimeout(refresh, pause);
}

function draw(view, argument, data) {
  const redraw = () => route().view === view && draw(view, argument, data);
  try {
    if (data.status === "rejected") throw data.reason;
    show($("main"), view.render(data.value, argument, { now: state.now, redraw }));
  } catch (error) {
    // Anything else is a mistake of this page, which goes on asking.
    if (!(error instanceof Problem)) console.error(error);
    show($("main"), h("h1", {}, view.title(argument)), h("p", { class: "problem", role: "alert" }, error.message));
  }
  $("main").setAttribute("aria-busy", "false");
}

/** What is wrong, in one line, or that nothing is. */
function drawStatus() {
  const [kind, text] = summary();
  const status = $("status");
  if (status.textContent !== text) status.textContent = text;
  status.dataset.state = kind;
  document.body.classList.toggle("lost", kind === "lost");
  if (state.now) $("version").textContent = state.now.version;
}

function summary() {
  if (state.lostSince) {
    const since = `No answer from the server since ${time(state.lostSince)}.`;
    return ["lost", state.now ? `${since} What is shown is from before; it is asked again.` : since];
  }
  if (!state.now) return ["waiting", "Waiting for the server"];
  const { store, reload } = state.now;
  if (store.state !== "ready") return ["bad", `Degraded: ${store.reason ?? "the store fails"}`];
  if (reload.restart_needed.length > 0) {
    const sections = list(reload.restart_needed.map((section) => `[${section}]`));
    return ["warn", `Restart needed: ${sections} changed in the configuration`];
  }
  return ["good", "All good"];
}

function askForToken() {
  const dialog = $("token");
  $("token-problem").textContent = token.get() ? "This is not the token of this server." : "";
  token.forget();
  drawStatus();
  if (!dialog.open) dialog.showModal();
}

function acted() {
  account.forget();
  refresh();
}

function navigate() {
  const { name, view, argument } = route();
  for (const link of document.querySelectorAll("nav a")) {
    const isCurrent = link.hash === `#/${name === "account" ? "accounts" : name}`;
    isCurrent ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
  document.title = `${view.title(argument)} – Slidegate`;
  $("main").dataset.view = argument ? `${name}/${argument}` : name;
  $("main").setAttribute("aria-busy", "true");
  show($("main"), h("h1", {}, view.title(argument)), h("p", { class: "empty" }, "Loading"));
  $("outcome").textContent = "";
  window.scrollTo(0, 0);
  refresh();
}

$("token").addEventListener("cancel", (event) => event.preventDefault());
$("token").addEventListener("close", () => {
  const field = $("token").querySelector("input");
  // What no header can carry is not the token: the server says so to another that is not.
  token.set(/^[\x21-\x7e]*$/.test(field.value) ? field.value : "?");
  field.value = "";
  refresh();
});
$("skip").addEventListener("click", (event) => {
  event.preventDefault();
  $("main").focus();
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-act]");
  if (button) act(button.dataset, state.now, acted);
});
document.addEventListener("visibilitychange", refresh);
window.addEventListener("hashchange", navigate);
navigate();
