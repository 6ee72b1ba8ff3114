// What is spent in a window, and when it comes free, as a picture: a unit comes free one window after
// it was spent, so one axis has both times.

import { h, svg } from "./dom.js";
import { count, list, period, plural, time } from "./format.js";

/** How many instants are written out. */
const SHOWN = 4;

export function density({ counts, free, window_ms: window, spent }, at, label) {
  const words = sentence(free, at);
  if (spent === 0) return h("p", { class: "note" }, "Nothing is spent in its window.");
  const most = Math.max(...counts, 1);
  const bars = counts.map((units, i) => units > 0 &&
    svg("rect", { class: "spent", x: i + 0.08, width: 0.84, y: (100 - (100 * units) / most).toFixed(2), height: ((100 * units) / most).toFixed(2) },
      svg("title", {}, `${plural(units, "unit")} spent about ${period(window * (1 - (i + 0.5) / counts.length))} ago`)));
  const scale = counts.length / window;
  const instants = free.map(({ after_ms: after }) => `M${Math.min(after * scale, counts.length).toFixed(3)} 0V10`).join("");
  return h("figure", { class: "density" },
    h("div", { class: "plot" },
      h("div", { class: "scale", "aria-hidden": "true" }, h("span", {}, count(most)), h("span", {}, "0")),
      h("div", {},
        svg("svg", { class: "bars", viewBox: `0 0 ${counts.length} 100`, preserveAspectRatio: "none", role: "img", "aria-label": `${label}: ${plural(spent, "unit")} spent over ${period(window)}` }, bars),
        svg("svg", { class: "instants", viewBox: `0 0 ${counts.length} 10`, preserveAspectRatio: "none", "aria-hidden": "true" }, svg("path", { d: instants })))),
    axis("spent", [`${period(window)} ago`, `${period(window / 2)} ago`, "now"]),
    axis("free", ["now", `in ${period(window / 2)}`, `in ${period(window)}`]),
    h("figcaption", {}, words));
}

const axis = (name, marks) =>
  h("div", { class: "times two", "aria-hidden": "true" }, h("b", {}, name), marks.map((mark) => h("span", {}, mark)));

/** The next instants at which units come free. */
function sentence(free, at) {
  if (free.length === 0) return "No unit comes free before the window is over.";
  const instant = ({ units, after_ms: after }) => `${plural(units, "unit")} at ${time(new Date(at).getTime() + after)} (in ${period(after)})`;
  const next = `Come free: ${list(free.slice(0, SHOWN).map(instant))}`;
  const last = free.at(-1);
  return free.length > SHOWN ? `${next}; the last of ${plural(free.length, "instant")} is in ${period(last.after_ms)}.` : `${next}.`;
}
