// Beside the panels of a chart: the name of each, its newest value, and a summary of the view; as elements on the page, and as
// text in a file. `isWhole`: the view has all of the chart.
// @ts-check
/** @import { ChartDocument, Line, Panel } from "./types" */
import { attribute, fillOnce, make, put, putValue } from "./dom.js";
import * as format from "./format.js";
import { chartFont } from "./lanes.js";
import { axisScale } from "./scale.js";
import { theme } from "./theme.js";
import { coveredTime, newestPoint } from "./trace.js";

export const GUTTER = 176; // px beside the plots
const HEADROOM = 1.1; // times the highest value, up to which an axis reaches
const HEADROOM_OF_LIMIT = 1.2; // if the words of a limit stand above its line
const NARROWEST = 330; // px of a chart up to which the peak of a memory has a row of its own

// The range of the axis of a panel, [low, high, whether any value or limit is known], from the facts of its lines.
/** @param {Panel} panel @returns {[number, number, boolean]} */
export function valueRange(panel, facts) {
  const low = Math.min(...facts.map((one) => one.low));
  const high = Math.max(...facts.map((one) => one.high));
  const limits = panel.limits.map((one) => one.at);
  const isKnown = Number.isFinite(low) && Number.isFinite(high);
  if (panel.zero) {
    const top = Math.max(format.known(panel.top) ? panel.top : isKnown ? high : 0, isKnown ? high : 0, ...limits);
    const room = panel.unit === "ratio" ? 1.04 : limits.length ? HEADROOM_OF_LIMIT : HEADROOM;
    return [0, (top || 1) * room, isKnown || format.known(panel.top) || limits.length > 0];
  }
  if (!isKnown) { return [0, 1, false]; }
  const top = Math.max(high, ...limits);
  const span = Math.max(top - low, axisScale.least(panel.unit) || Math.abs(top) / 10 || 1);
  const under = low - (span - (top - low)) / 2;
  return [under - span / 8, under + span + span / (limits.length ? 5 : 8), true];
}

// What the newest value covers if it is no sample but a mean of a long time.
/** @param {ChartDocument} doc */
function coverage(doc, { panel, isNow }) {
  const cell = isNow && panel.lines.length ? coveredTime(doc, panel.lines[0], newestPoint(panel.lines[0])) : null;
  return cell ? `mean within the last ${format.span(cell[1] - cell[0])}` : "";
}

/** @param {Panel} panel */
function thinLineNote(panel) {
  const line = panel.lines.find((one) => one.look === "thin" && one.label);
  return line ? `thin\u00a0line:\u00a0${line.label}` : "";
}

// Notes of a small panel that have a row of their own, since there is no room beside its value.
/** @param {ChartDocument} doc */
export const smallPanelNote = (doc, one) => [coverage(doc, one), thinLineNote(one.panel)].filter(Boolean).join(" · ");

// Whether the summary of a small panel stands in that row too: beside a long name or an amount there is no room.
/** @param {Panel} panel */
export const isNoteBelow = (panel, width) => Boolean(thinLineNote(panel)) || (width < NARROWEST && panel.unit === "bytes");

// Values of lines in a row above a small panel: fewer if their marks are long.
/** @param {Panel} panel */
export const valuesPerRow = (panel) => (panel.lines.some((line) => line.mark && line.mark.length > 2) ? 2 : 3);

// The summary of a panel's first line in the view.
/** @param {Panel} panel */
export function panelContext(panel, facts, isWhole, isSmall) {
  const write = (value) => axisScale.write(panel.unit, value);
  if (panel.below) { return panel.shade && !isSmall ? `${panel.below}, shade: ${panel.shade}` : panel.below; }
  if (!facts.seen) { return facts.odd ? "no number in this window" : "no values in this window"; }
  // The server may know the mean of the whole better than the points do, as other parts of the page show it.
  const isCounted = isWhole && format.known(panel.whole);
  const mean = isCounted ? panel.whole : facts.mean;
  const peak = isCounted ? Math.max(panel.whole, facts.high) : facts.high; // a point may be newer
  if (panel.unit === "bytes" && format.known(panel.top)) { return isSmall ? `peak ${write(peak)}` : `of ${write(panel.top)} · peak ${write(peak)}`; }
  // The energy of a whole run is counted and shown elsewhere; the sum of the points would differ from it.
  if (panel.unit === "watts") { return `mean ${write(mean)}${panel.counted && isWhole ? "" : ` · ${facts.isPartial ? "≥\u00a0" : ""}${format.joules(facts.area)}`}`; }
  if (panel.unit === "celsius") { return `max ${write(peak)}`; }
  if (panel.unit === "plain") { return isWhole ? `lowest ${write(facts.low)}` : `${write(facts.low)} to ${write(facts.high)}`; }
  return `mean ${write(mean)}`;
}

// Why a panel has no current value, and for how long: `lost 40 s`.
/** @param {ChartDocument} doc */
function absence(doc, gone) {
  const age = format.known(gone.age) ? gone.age : doc.silent ? doc.silent.age : NaN;
  const words = doc.silent ? doc.silent.title : "no value for";
  return format.known(age) && age >= 1 ? `${words} ${format.span(age)}` : doc.silent ? words : "no value";
}

// The heading of a panel. Values of a run that is over are its last ones.
/** @param {ChartDocument} doc @param {Panel} panel */
const heading = (doc, panel) => (!doc.goesOn && (panel.lists || doc.spans) ? `${panel.title}, last` : panel.title);

// The newest value of a line in the view; a logged one may be NaN or infinite.
/** @param {Panel} panel */
const newestValue = (panel, facts) => (facts.odd ? facts.odd : facts.last === null ? format.MISSING : axisScale.write(panel.unit, facts.last));

// The same of one line of several, which may have no current value.
const newestOfList = ({ panel, facts, isNow, gone }, nth) => (isNow && gone[nth] ? format.MISSING : newestValue(panel, facts[nth]));

// Keeps a number on the line of its unit and of the word before it, and a dot on the line before it.
const withoutBreaks = (text) => format.unbroken(text).replace(/\b(of|peak|mean|max|lowest|to) (?=[\d−-])/g, "$1\u00a0").replace(/ ·/g, "\u00a0·");

// The words of a gutter: heading, newest value, and summary of the view.
/** @param {ChartDocument} doc */
export function gutterText(doc, one, isWhole) {
  const { panel, facts } = one;
  const [main] = facts;
  if (panel.lists) { return [heading(doc, panel), "", ""]; }
  if (one.isNow && one.gone[0]) { return [panel.title, format.MISSING, format.unbroken(absence(doc, one.gone[0]))]; }
  const dots = panel.lines.findIndex((line) => line.look === "dots");
  const second = dots > 0 ? newestValue(panel, facts[dots]) : format.MISSING;
  const label = second === format.MISSING ? "" : panel.lines[dots].label;
  const beside = label && `${label.startsWith(`${panel.title}, `) ? label.slice(panel.title.length + 2) : label} ${second}`; // `end of epoch 0.41`
  const context = main ? panelContext(panel, main, isWhole, one.isSmall) : "";
  const parts = one.isSmall ? [context] : [coverage(doc, one), context, thinLineNote(panel)];
  return [heading(doc, panel), main ? newestValue(panel, main) : format.MISSING, withoutBreaks(beside || parts.filter(Boolean).join(" · "))];
}

// The gutters of a chart on the page, which `show` fills.
export function chartGutters() {
  const node = make("div", { class: "gutters" });

  function show(doc, at, isWhole) {
    const shape = doc.panels.map((panel) => [panel.key, heading(doc, panel), panel.lists ? panel.lines.map((line) => [line.label, line.role]) : 0]);
    fillOnce(node, shape, () => doc.panels.map((panel) => gutter(heading(doc, panel), panel)));
    node.classList.toggle("small", at.isSmall);
    [...node.children].forEach((child, index) => update(/** @type {HTMLElement} */ (child), doc, at.panels[index], at, isWhole));
  }
  return { node, show };
}

function gutter(head, panel) {
  return make("div", { class: panel.lists ? "gutter lists" : "gutter" },
    make("span", { class: "what", text: head, title: head }), make("span", { class: "value", "data-unit": "unit" }), make("span", { class: "below" }),
    panel.lists ? make("span", { class: "each" }, ...panel.lines.map(listedLine)) : make("span", { class: "covers mut" }));
}

function listedLine(line) {
  const swatch = make("i", { "aria-hidden": "true" });
  swatch.style.background = `var(--${line.role})`;
  return make("span", { title: line.label }, swatch, line.mark ? make("span", { class: "mut", "aria-hidden": "true", text: line.mark }) : null, make("span", { class: "sr", text: `${line.label}: ` }), make("b"));
}

function update(node, doc, one, at, isWhole) {
  node.style.top = `${one.head}px`;
  node.style.height = `${one.bottom - one.head}px`;
  const [, valueNode, belowNode, last] = node.children;
  const [, value, below] = gutterText(doc, one, isWhole);
  putValue(valueNode, value);
  attribute(belowNode, "title", below);
  if (one.panel.lists) {
    last.style.setProperty("--row", valuesPerRow(one.panel));
    one.panel.lines.forEach((line, nth) => { put(last.children[nth].lastChild, newestOfList(one, nth)); });
    return;
  }
  const hasRow = at.isSmall && value !== format.MISSING;
  const isBelow = hasRow && isNoteBelow(one.panel, at.width);
  put(belowNode, isBelow ? "" : below);
  put(last, hasRow ? [isBelow ? below : "", smallPanelNote(doc, one)].filter(Boolean).join(" · ") : "");
  const [main] = one.facts;
  const isBeyond = main && !(one.isNow && one.gone[0]) && one.panel.limits.some((limit) => main.last !== null && main.last >= limit.at);
  node.classList.toggle("warn", Boolean(main && (isBeyond || (main.odd && value === main.odd))));
}

// A text cut to a width.
export function shortened(pen, text, room) {
  let cut = text;
  while (cut.length > 1 && pen.measureText(`${cut}…`).width > room) { cut = cut.slice(0, -1); }
  return cut === text || pen.measureText(text).width <= room ? text : `${cut}…`;
}

function wrapped(pen, text, room) {
  const rows = [];
  for (const word of text.split(" ")) {
    const longer = rows.length ? `${rows[rows.length - 1]} ${word}` : word;
    if (rows.length && pen.measureText(longer).width <= room) { rows[rows.length - 1] = longer; } else { rows.push(word); }
  }
  return rows;
}

// Draws a gutter into a file, which is never so narrow that gutters stand above the plots.
/** @param {ChartDocument} doc */
export function writeGutter(pen, doc, one, isWhole) {
  const [name, value, below] = gutterText(doc, one, isWhole);
  const [x, room] = [16, GUTTER - 24];
  const y = (row) => one.head + 58 + 14 * row;
  pen.textAlign = "left";
  pen.textBaseline = "alphabetic";
  pen.font = chartFont(12.5, 560);
  pen.fillStyle = theme.color("mut");
  pen.fillText(name, x, one.head + 18);
  pen.font = chartFont(20, 650);
  pen.fillStyle = theme.color("ink");
  pen.fillText(value, x, one.head + 41);
  pen.font = chartFont(11.5);
  pen.fillStyle = theme.color("mut");
  if (!one.panel.lists) {
    wrapped(pen, below, room).forEach((text, row) => { pen.fillText(shortened(pen, text, room), x, y(row)); });
    return;
  }
  one.panel.lines.forEach((line, row) => {
    pen.fillStyle = theme.color(line.role);
    const newest = newestOfList(one, row);
    pen.fillText(`${shortened(pen, line.label, room - 6 - pen.measureText(newest).width)} ${newest}`, x, y(row));
  });
}
