// The rows of a table as a file: RFC 4180, numbers in the units that their columns name, times in UTC, and no formulas.
// @ts-check
import { make } from "./dom.js";
import { feed } from "./feed.js";
import * as format from "./format.js";
import { stateNow } from "./kinds.js";
import { saveFile } from "./pen.js";

const ORDER_MARK = "\ufeff"; // else Excel reads UTF-8 as something else
const UNITS = {
  percent: "ratio", bytes: "bytes", watts: "watts", celsius: "celsius", gigahertz: "hertz", joules: "joules",
  duration: "seconds", span: "seconds", lasting: "seconds", age: "utc", when: "utc", elapsed: "utc",
};
const PICTURES = ["spark", "strip", "day", "bar", "tick"];

const named = (name, unit) => (!unit || name.endsWith(unit) ? name : `${name}_${unit}`);
const plain = (name) => name.toLowerCase().replace(/[^\w.]+/g, "_");
export const csvTime = (seconds) => (format.known(seconds) && Math.abs(seconds) < 1e11 ? new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ") : "");

// What a spreadsheet would take as a formula begins with an apostrophe, but a number may begin with its sign.
export function csvCell(value) {
  const text = value === null || value === undefined || Number.isNaN(value) ? "" : String(value);
  const safe = /^[=+\-@\t\r]/.test(text) && (!text.trim() || Number.isNaN(Number(text))) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}

// Times and heads of columns, the same in every file.
export const csvHead = (name, unit) => named(plain(name), unit);

export const csv = (lines) => ORDER_MARK + lines.map((line) => `${line.map(csvCell).join(",")}\r\n`).join("");

// The words of a cell, whatever parts it has.
function words(value) {
  if (value === null || value === undefined || value === format.MISSING) { return ""; }
  if (typeof value !== "object") { return String(value); }
  if (Array.isArray(value)) { return value.map(words).filter(Boolean).join("; "); }
  if (value.line) { return value.line.map(words).filter(Boolean).join(" "); }
  if ("person" in value) { return words(value.person); }
  if (value.now && !feed.isFresh()) { return ""; }
  if ("tag" in value) { return words(value.tag); }
  if ("fact" in value) { return `${value.fact} ${value.time === null ? value.text : csvTime(value.time)}`; }
  if ("old" in value) { return words(feed.isFresh() ? value.text : value.old); }
  return words(value.text);
}

// Names of a list in one cell: a semicolon parts them, and stands in none.
const listed = (all) => (all || []).map((one) => String(one).replace(/;/g, ",")).join(";");

// Columns of a head, with a column for each list next to it.
const withList = (head) => [...(head.listed ? [[head.listed, (row) => listed(row[head.listed])]] : []), ...columns(head)];

// A column by its head: [name, row => cell]; a GPU has its state beside its number.
function columns({ col, by, kind, part, saved, titled }) {
  const cell = (row) => (part === undefined ? row[col] : (row[col] || {})[part]);
  if (PICTURES.includes(kind)) { return []; }
  if (saved) { return [[saved, (row) => row[by]]]; }
  const title = titled && feed.value(titled); // rows may be of something else, as of the GPUs of a user
  const name = part === undefined ? (title ? plain(title) : col) : plain(part);
  if (kind === "state") {
    const word = (one) => (stateNow(one) === one.state ? one.title : feed.oldState());
    return [[name, (row) => cell(row).text], ["state", (row) => word(cell(row))]];
  }
  const unit = UNITS[kind];
  if (unit === "utc") { return [[named(name, unit), (row) => csvTime(cell(row))]]; }
  const since = (value) => (value && value.since !== undefined ? feed.now - value.since : words(value));
  return [[named(name, unit), (row) => since(cell(row))]];
}

export function tableCsv({ heads, rows }, key) {
  const all = [...(key ? [[key, (row) => row.key]] : []), ...heads.flatMap(withList)];
  return csv([all.map(([name]) => name), ...rows.map((row) => all.map(([, cell]) => cell(row)))]);
}

// Rows that came as a file has them: [{column: value}], all with the same columns.
const readyCsv = (rows) => csv([Object.keys(rows[0] || {}), ...rows.map((row) => Object.values(row))]);

// The button in its place of the layout; the file is named by its table, and by the time of its data or its period.
export function csvButton(place, table) {
  const { title, key, ready, period } = place.dataset;
  const when = () => (period && feed.value(period) ? String(feed.value(period)).replace(/\W+/g, "-") : time());
  const time = () => format.moment(format.known(feed.now) ? feed.now : Date.now() / 1000).replace(/[ :]/g, "-");
  table.button = make("button", {
    type: "button", class: "button csv", text: "CSV", title: "Download these rows", "aria-label": `${title} as CSV`,
    click: () => { table.whole((found) => { saveFile(`${table.name}-${when()}.csv`, "text/csv", ready ? readyCsv(feed.value(ready) || []) : tableCsv(found, key)); }); },
  });
  place.replaceWith(table.button);
}
