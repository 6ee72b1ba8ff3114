// Reads what a program wrote to a terminal, and writes what the terminal showed in the end, as SVG.
// It knows the few escape codes that `slidegate demo` uses.

import { readFileSync } from "node:fs";

const CELL = { width: 8.4, height: 19 };
const MARGIN = { x: 20, top: 52, bottom: 18 };

/** The rows of cells that are left when all of the text has been written. */
function screen(text) {
  const rows = [[]];
  let row = 0;
  let column = 0;
  let style = "";
  const codes = /\x1b\[([?\d;]*)([A-Za-z])|\r|\n|[^\x1b\r\n]/gu;
  for (const [token, argument, code] of text.matchAll(codes)) {
    if (token === "\r") column = 0;
    else if (token === "\n") rows[++row] ??= [];
    else if (code === "A") row -= Number(argument);
    else if (code === "K") rows[row].length = Math.min(rows[row].length, column);
    else if (code === "J") {
      rows[row].length = Math.min(rows[row].length, column);
      rows.length = row + 1;
    } else if (code === "m") style = argument === "0" ? "" : `s${argument}`;
    else if (code === undefined) rows[row][column++] = { letter: token, style };
  }
  return rows;
}

/** Stretches of a row that look the same. Blanks are left out, so that no font can shift a column. */
function stretches(row) {
  const found = [];
  let gap = true;
  for (const [column, cell] of Array.from(row).entries()) {
    const { letter, style } = cell ?? { letter: " ", style: "" };
    const last = found.at(-1);
    if (letter === " ") gap = true;
    else if (!gap && last.style === style) last.text += letter;
    else found.push({ column, style, text: letter });
    if (letter !== " ") gap = false;
  }
  return found;
}

const escaped = (text) => text.replace(/[&<>]/g, (it) => `&#${it.codePointAt(0)};`);
const rounded = (number) => Number(number.toFixed(1));

function line(row, index) {
  const y = MARGIN.top + CELL.height * index;
  const spans = stretches(row).map(({ column, style, text }) => {
    const x = rounded(MARGIN.x + column * CELL.width);
    const width = rounded([...text].length * CELL.width);
    const look = style && ` class="${style}"`;
    return `<tspan x="${x}" textLength="${width}"${look}>${escaped(text)}</tspan>`;
  });
  return spans.length ? `<text y="${rounded(y)}">${spans.join("")}</text>\n` : "";
}

const [command, columns] = [process.argv[2], 80];
const prompt = screen(`\x1b[2m$\x1b[0m \x1b[1m${command}\x1b[0m\n`).slice(0, 1);
const rows = [...prompt, ...screen(readFileSync(0, "utf8"))];
while (rows.at(-1).length === 0) rows.pop();

const width = Math.ceil(2 * MARGIN.x + columns * CELL.width);
const height = Math.ceil(MARGIN.top + (rows.length - 1) * CELL.height + MARGIN.bottom);
process.stdout.write(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" \
width="${width}" height="${height}" role="img" aria-label="What slidegate demo shows">
<style>
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d5dbe3 }
.s1 { font-weight: bold; fill: #ffffff }
.s2 { fill: #8290a0 }
.s31 { fill: #ff8a80 }
.s32 { fill: #7ee2a8 }
</style>
<rect x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="9" fill="#141a22" stroke="#3a4653"/>
<g fill="#3a4653"><circle cx="22" cy="20" r="5.5"/><circle cx="40" cy="20" r="5.5"/>\
<circle cx="58" cy="20" r="5.5"/></g>
${rows.map(line).join("")}</svg>
`);
