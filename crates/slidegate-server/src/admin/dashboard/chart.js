// Lines over time, as SVG. The lines stretch with the page; the labels are text beside them.

import { h, svg } from "./dom.js";
import { period } from "./format.js";

/** Lines with an axis. Each series has a name, a kind (which is its colour and dash) and values. */
export function chart({ title, series, stepMs, format, steps }) {
  const top = ceiling(Math.max(0, ...series.flatMap(({ values }) => values.filter((v) => v !== null))));
  const length = steps * stepMs;
  const marks = [1, 2 / 3, 1 / 3].map((part) => `${period(part * length)} ago`);
  const words = series.map(({ name, values }) => `${name} ${format(latest(values))}`).join(", ");
  return h("figure", { class: "chart" },
    h("figcaption", {}, title),
    h("div", { class: "plot" },
      h("div", { class: "scale", "aria-hidden": "true" }, h("span", {}, format(top)), h("span", {}, format(top / 2)), h("span", {}, format(0))),
      lines(series, top, steps, `${title}, now: ${words}`, true)),
    h("div", { class: "times", "aria-hidden": "true" }, marks.map((mark) => h("span", {}, mark)), h("span", {}, "now")));
}

/** Lines without an axis. */
export const sparkline = (series, steps, label) => {
  const top = Math.max(...series.flatMap(({ values }) => values), 0);
  return lines(series, top || 1, steps, label, false);
};

function lines(series, top, steps, label, hasGrid) {
  const picture = svg("svg", { class: "lines", viewBox: `0 0 ${steps - 1} 100`, preserveAspectRatio: "none", role: "img", "aria-label": label });
  if (hasGrid) {
    picture.append(svg("path", { class: "grid", d: `M0 0H${steps - 1}M0 50H${steps - 1}M0 100H${steps - 1}` }));
  }
  for (const { kind, values } of series) {
    picture.append(svg("path", { class: `line ${kind}`, d: path(values, top, steps) }));
  }
  return picture;
}

/** The newest value is at the right edge. Where there is none, the line has a gap. */
function path(values, top, steps) {
  const start = steps - values.length;
  let pen = "M";
  let text = "";
  values.forEach((value, i) => {
    if (value === null) {
      pen = "M";
      return;
    }
    const point = `${start + i} ${(100 - (97 * value) / top).toFixed(2)}`;
    const isAlone = pen === "M" && (values[i + 1] ?? null) === null;
    text += isAlone ? `M${point}h0.4` : `${pen}${point}`;
    pen = "L";
  });
  return text;
}

/** The names of the lines, with their values now; each can be hidden. */
export const legend = (series, format, hidden) =>
  h("ul", { class: "legend" }, series.map(({ name, kind, values }) =>
    h("li", {}, h("button", { type: "button", "data-series": kind, "aria-pressed": String(!hidden.has(kind)) },
      svg("svg", { class: "lines swatch", viewBox: "0 0 20 10", "aria-hidden": "true" }, svg("path", { class: `line ${kind}`, d: "M0 5H20" })),
      `${name} `, h("b", {}, format(latest(values)))))));

export const latest = (values) => values.findLast((value) => value !== null) ?? null;

/** The next of 1, 2, 5, 10, 20, 50 and so on. */
function ceiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}
