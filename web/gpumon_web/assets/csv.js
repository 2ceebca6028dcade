// Tables and charts as CSV files: RFC 4180, numbers in the units that their columns name, times in UTC, and no formulas.
// @ts-check
/** @import { ChartDocument } from "./types" */
import { make } from "./dom.js";
import { feed } from "./feed.js";
import * as format from "./format.js";
import { stateNow } from "./kinds.js";
import { saveFile } from "./pen.js";
import { lowerBound } from "./trace.js";

const BYTE_ORDER_MARK = "\ufeff"; // tells Excel that a file is UTF-8
const UNITS = {
  percent: "ratio", bytes: "bytes", watts: "watts", celsius: "celsius", gigahertz: "hertz", joules: "joules",
  duration: "seconds", span: "seconds", lasting: "seconds", age: "utc", when: "utc", elapsed: "utc",
};
const PICTURES = ["spark", "strip", "day", "bar", "tick"]; // kinds without a column
const DIGITS = 6; // of numbers that are no whole numbers, as the server sends them

const utc = (seconds) => (format.known(seconds) && Math.abs(seconds) < 1e11 ? new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ") : "");
const identifier = (name) => name.toLowerCase().replace(/[^\w.]+/g, "_");
const withUnit = (name, unit) => (!unit || name.endsWith(unit) ? name : `${name}_${unit}`);

// A cell. Text that a spreadsheet would take as a formula gets an apostrophe in front; a number keeps its sign.
export function csvCell(value) {
  const text = value === null || value === undefined || Number.isNaN(value) ? "" : String(value);
  const safe = /^[=+\-@\t\r]/.test(text) && (!text.trim() || Number.isNaN(Number(text))) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}

export const csv = (lines) => BYTE_ORDER_MARK + lines.map((line) => `${line.map(csvCell).join(",")}\r\n`).join("");

// The words of a cell of any kind.
function words(value) {
  if (value === null || value === undefined || value === format.MISSING) { return ""; }
  if (typeof value !== "object") { return String(value); }
  if (Array.isArray(value)) { return value.map(words).filter(Boolean).join("; "); }
  if (value.line) { return value.line.map(words).filter(Boolean).join(" "); }
  if ("person" in value) { return words(value.person); }
  if (value.now && !feed.isFresh()) { return ""; }
  if ("tag" in value) { return words(value.tag); }
  if ("fact" in value) { return `${value.fact} ${value.time === null ? value.text : utc(value.time)}`; }
  if ("old" in value) { return words(feed.isFresh() ? value.text : value.old); }
  return words(value.text);
}

// The columns of a heading, as [name, function of a row]: none for a picture, two for a GPU (its number and its state), and
// one more for names that are listed.
function columns({ col, by, kind, part, saved, titled, listed }) {
  const names = (all) => (all || []).map((one) => String(one).replace(/;/g, ",")).join(";");
  const list = listed ? [[listed, (row) => names(row[listed])]] : [];
  const cell = (row) => (part === undefined ? row[col] : (row[col] || {})[part]);
  if (PICTURES.includes(kind)) { return list; }
  if (saved) { return [...list, [saved, (row) => row[by]]]; }
  const title = titled && feed.value(titled); // rows may be of something else, such as the GPUs of a user
  const name = part === undefined ? (title ? identifier(title) : col) : identifier(part);
  if (kind === "state") {
    const state = (one) => (stateNow(one) === one.state ? one.title : feed.oldState());
    return [...list, [name, (row) => cell(row).text], ["state", (row) => state(cell(row))]];
  }
  const unit = UNITS[kind];
  const plain = (value) => (unit === "utc" ? utc(value) : value && value.since !== undefined ? feed.now - value.since : words(value));
  return [...list, [withUnit(name, unit), (row) => plain(cell(row))]];
}

// A table; `key` names the column with the keys of its rows.
export function tableCsv({ heads, rows }, key) {
  const all = [...(key ? [[key, (row) => row.key]] : []), ...heads.flatMap(columns)];
  return csv([all.map(([name]) => name), ...rows.map((row) => all.map(([, cell]) => cell(row)))]);
}

// Rows that the server sends as a file has them: [{column: value}].
const rowsCsv = (rows) => csv([Object.keys(rows[0] || {}), ...rows.map((row) => Object.values(row))]);

// Puts the button at its place in the layout. The file has the name of the table and of its period, or the time of its data.
export function csvButton(place, table) {
  const { title, key, ready, period } = place.dataset;
  const time = () => format.moment(format.known(feed.now) ? feed.now : Date.now() / 1000).replace(/[ :]/g, "-");
  const suffix = () => (period && feed.value(period) ? String(feed.value(period)).replace(/\W+/g, "-") : time());
  table.button = make("button", {
    class: "button csv", text: "CSV", title: "Download these rows", "aria-label": `${title} as CSV`,
    click: () => table.whole((view) => saveFile(`${table.name}-${suffix()}.csv`, "text/csv", ready ? rowsCsv(feed.value(ready) || []) : tableCsv(view, key))),
  });
  place.replaceWith(table.button);
}

// What a chart shows from `from` to `to`: a row for each point, and a column for each line. A value that was logged between two
// sampled points stands in the row of the nearer one; a second value there has a row of its own.
/** @param {ChartDocument} doc */
export function chartCsv(doc, [from, to]) {
  const lines = doc.panels.flatMap((panel) => panel.lines.map((line) => {
    const name = identifier([panel.key, line.label].filter(Boolean).join(" "));
    return { ...line, name: withUnit(name, panel.unit === "plain" ? "" : panel.unit) };
  }));
  const grid = lines.find((line) => line.step) || { x: [], step: 0 };
  const rows = new Map();
  const rounded = (value) => (Number.isFinite(value) && !Number.isInteger(value) ? Number(value.toPrecision(DIGITS)) : value);
  const rowOf = (line, time, column) => {
    const near = grid.x[lowerBound(grid.x, time - grid.step / 2)];
    return !line.step && Math.abs(near - time) <= grid.step / 2 && !rows.get(near)?.[column] ? near : time;
  };
  lines.forEach((line, column) => {
    for (let at = lowerBound(line.x, from); at < line.x.length && line.x[at] <= to; at += 1) {
      const key = rowOf(line, line.x[at], column);
      if (!rows.has(key)) { rows.set(key, []); }
      rows.get(key)[column] = [line.mean[at], line.low ? line.low[at] : null, line.high ? line.high[at] : null].map(rounded);
    }
  });
  const isTime = doc.axis === "time";
  const withRange = (line, all) => (line.low && line.high ? all : all.slice(0, 1));
  const head = [...(isTime ? ["time_utc", "unix_seconds"] : [doc.axis]), ...lines.flatMap((line) => withRange(line, [line.name, `${line.name}_lowest`, `${line.name}_highest`]))];
  const body = [...rows.keys()].sort((a, b) => a - b).map((key) => [
    ...(isTime ? [utc(key), Number(key.toFixed(3))] : [key]),
    ...lines.flatMap((line, column) => withRange(line, rows.get(key)[column] || [null, null, null])),
  ]);
  return csv([head, ...body]);
}
