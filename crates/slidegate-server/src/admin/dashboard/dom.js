// Builds elements, and changes what is on the page into what it should be. All text goes through
// text nodes and attributes: identities are chosen by clients.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. Attributes that are null or false are left out. */
export const h = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);

/** An SVG element. */
export const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Makes the children of `parent` those given. Existing elements stay, with their focus. */
export function show(parent, ...children) {
  const fresh = document.createElement("div");
  fresh.append(...children.flat(Infinity).filter(Boolean));
  patchChildren(parent, fresh);
}

function patch(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !isOurs(old, name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && !isOurs(old, name)) old.setAttribute(name, value);
  }
  patchChildren(old, fresh);
}

// Whether the attribute is the reader's to change: an open or closed <details>.
const isOurs = (element, name) => element.tagName === "DETAILS" && name === "open";

function patchChildren(parent, fresh) {
  const keyed = new Map();
  for (const child of parent.childNodes) {
    if (child.dataset?.key) keyed.set(child.dataset.key, child);
  }
  let place = parent.firstChild;
  for (const child of [...fresh.childNodes]) {
    const known = keyed.get(child.dataset?.key);
    if (known && known !== place) parent.insertBefore(known, place);
    const old = known ?? place;
    if (old && isSame(old, child)) {
      patch(old, child);
      place = old.nextSibling;
    } else {
      parent.insertBefore(child, place);
    }
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

const isSame = (old, fresh) =>
  old.nodeName === fresh.nodeName && old.dataset?.key === fresh.dataset?.key && old.id === fresh.id;

/** A table, or a sentence if it would be empty. */
export function table(caption, columns, rows, empty) {
  if (rows.length === 0) return h("p", { class: "empty" }, empty);
  return h("div", { class: "scroll" }, h("table", { "aria-label": caption },
    h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col" }, column)))),
    h("tbody", {}, rows)));
}

/** A row of a table. On narrow screens each cell has its column's name before it. */
export const row = (key, columns, cells) =>
  h("tr", { "data-key": key }, cells.map((cell, i) => h("td", { "data-column": columns[i] }, h("div", {}, cell))));

/** How much of a whole is used, as a bar with its words. */
export function bar(part, whole, words, kind) {
  const share = whole > 0 ? Math.min(part / whole, 1) : 0;
  const state = kind ?? (share >= 1 ? "full" : share >= 0.8 ? "high" : "low");
  return h("span", { class: "meter" },
    svg("svg", { class: `bar ${state}`, role: "img", "aria-label": words },
      svg("rect", { class: "ground", width: "100%", height: "100%" }),
      svg("rect", { class: "part", width: `${(share * 100).toFixed(1)}%`, height: "100%" })),
    h("span", { class: "words" }, words));
}

/** A word that stands out, with a colour that is not its only signal. */
export const badge = (kind, text) => h("span", { class: `badge ${kind}` }, text);

export const panel = (title, ...children) =>
  h("section", { class: "panel", "aria-label": title }, h("h2", {}, title), children);
