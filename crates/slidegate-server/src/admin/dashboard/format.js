// Numbers, times and identities as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const rough = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export const count = (number) => whole.format(number);

/** Of something a second. */
export const rate = (number) => (number >= 10 ? whole : fine).format(number);

export function share(part, all) {
  if (!all) return "–";
  const percent = (100 * part) / all;
  return percent > 0 && percent < 0.1 ? "< 0.1 %" : `${percent.toFixed(percent < 10 ? 1 : 0)} %`;
}

/** A length of time in two units at most. */
export function period(ms) {
  if (ms < 1000) return `${Math.ceil(ms)} ms`;
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  let seconds = Math.ceil(ms / 1000);
  const words = [];
  for (const [unit, length] of units) {
    const number = Math.floor(seconds / length);
    if (number > 0 && words.length < 2) words.push(`${number} ${unit}`);
    else if (words.length > 0) break;
    seconds -= number * length;
  }
  return words.join(" ") || "0 s";
}

export function microseconds(us) {
  if (us === null || us === undefined) return "–";
  if (us < 1000) return `${rough.format(us)} µs`;
  return us < 1e6 ? `${rough.format(us / 1000)} ms` : `${rough.format(us / 1e6)} s`;
}

/** The time of day, with the date unless it is today. */
export function time(instant) {
  const date = new Date(instant);
  if (Number.isNaN(date.getTime())) return String(instant);
  const clock = date.toLocaleTimeString("en-GB");
  const today = date.toDateString() === new Date().toDateString();
  return today ? clock : `${date.toLocaleDateString("en-CA")} ${clock}`;
}

/** The address of an account's page. */
export const accountLink = (identity) => `#/account/${encodeURIComponent(identity)}`;

export const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

export const list = (words) =>
  words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
