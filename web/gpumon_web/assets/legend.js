// Beside the panels of a chart: the name of each, its newest value and what it was in the view; as elements on the page,
// and as text of a file. `isWhole`: all of the document is in view.
// @ts-check
/** @import { ChartDocument, Panel } from "./types" */
import { attribute, fillOnce, make, put, putValue } from "./dom.js";
import * as format from "./format.js";
import { coverage, inRow, isNoteBelow, panelContext, smallPanelNote, thinLineNote } from "./gutter.js";
import { chartFont } from "./lanes.js";
import { axisScale } from "./scale.js";
import { theme } from "./theme.js";

export const GUTTER = 176;

// Why a panel has no value of now, and for how long: `lost 40 s`.
/** @param {ChartDocument} doc */
function absence(doc, gone) {
  const age = format.known(gone.age) ? gone.age : doc.silent ? doc.silent.age : NaN;
  const words = doc.silent ? doc.silent.title : "no value for";
  return format.known(age) && age >= 1 ? `${words} ${format.span(age)}` : doc.silent ? words : "no value";
}

// A panel whose values are of what is over: the last ones, and none of now.
/** @param {ChartDocument} doc @param {Panel} panel */
const isOver = (doc, panel) => !doc.goesOn && (panel.lists || Boolean(doc.spans));
/** @param {ChartDocument} doc @param {Panel} panel */
const headOf = (doc, panel) => (isOver(doc, panel) ? `${panel.title}, last` : panel.title);

// The last value of a line in the view: what was logged may be no number.
/** @param {Panel} panel */
const lastly = (panel, facts) => (facts.odd ? facts.odd : facts.last === null ? format.MISSING : axisScale.write(panel.unit, facts.last));

// Splits a text into words so that a number stays on the line of its word and unit, and no line begins with a dot.
const whole = (text) => format.unbroken(text).replace(/\b(of|peak|mean|max|lowest|to) (?=[\d−-])/g, "$1\u00a0").replace(/ ·/g, "\u00a0·");

// What a gutter says: the name, the newest value, and what was in the view.
/** @param {ChartDocument} doc */
export function spokenText(doc, one, isWhole) {
  const { panel, facts } = one;
  const missing = one.isNow && one.gone[0];
  if (panel.lists) { return [headOf(doc, panel), "", ""]; }
  const main = facts[0];
  if (missing) { return [panel.title, format.MISSING, format.unbroken(absence(doc, missing))]; }
  const value = main ? lastly(panel, main) : format.MISSING;
  const checked = panel.lines.findIndex((line) => line.look === "dots");
  const other = checked > 0 ? lastly(panel, facts[checked]) : format.MISSING;
  const name = other === format.MISSING ? "" : panel.lines[checked].label;
  const beside = name && `${name.startsWith(`${panel.title}, `) ? name.slice(panel.title.length + 2) : name} ${other}`; // as `end of epoch 0.41`
  const context = main ? panelContext(panel, main, isWhole, one.isSmall) : "";
  const parts = one.isSmall ? [context] : [coverage(doc, one), context, thinLineNote(panel)];
  return [headOf(doc, panel), value, whole(beside || parts.filter(Boolean).join(" · "))];
}

// The last value in the view of one line of several.
function lastOf({ panel, facts, isNow, gone }, nth) {
  return isNow && gone[nth] ? format.MISSING : lastly(panel, facts[nth]);
}

// The gutters of a page; `show` puts there what they say.
export function chartGutters() {
  const node = make("div", { class: "gutters" });

  function panelNode(doc, panel) {
    const head = headOf(doc, panel);
    return make("div", { class: panel.lists ? "gutter lists" : "gutter" },
      make("span", { class: "what", text: head, title: head }), make("span", { class: "value", "data-unit": "unit" }), make("span", { class: "below" }),
      panel.lists ? make("span", { class: "each" }, ...panel.lines.map((line) => row(line))) : make("span", { class: "covers mut" }));
  }

  function show(doc, at, isWhole) {
    const sign = doc.panels.map((panel) => [panel.key, headOf(doc, panel), panel.lists ? panel.lines.map((line) => [line.label, line.role]) : 0]);
    fillOnce(node, sign, () => doc.panels.map((panel) => panelNode(doc, panel)));
    node.classList.toggle("small", at.isSmall);
    [...node.children].forEach((child, index) => update(child, doc, at.panels[index], at, isWhole));
  }

  function update(child, doc, one, at, isWhole) {
    child.style.top = `${one.head}px`;
    child.style.height = `${one.bottom - one.head}px`;
    const [, value, below] = spokenText(doc, one, isWhole);
    putValue(child.children[1], value);
    const under = !one.panel.lists && at.isSmall && value !== format.MISSING ? smallPanelNote(doc, one) : "";
    const isUnder = at.isSmall && !one.panel.lists && value !== format.MISSING && isNoteBelow(one.panel, at.width);
    put(child.children[2], isUnder ? "" : below);
    attribute(child.children[2], "title", below);
    if (one.panel.lists) { child.lastChild.style.setProperty("--row", inRow(one.panel)); }
    if (!one.panel.lists) { put(child.lastChild, isUnder ? [below, under].filter(Boolean).join(" · ") : under); } else {
      one.panel.lines.forEach((line, nth) => {
        const each = child.children[3].children[nth];
        put(each.lastChild, lastOf(one, nth));
        attribute(each, "title", line.label);
      });
    }
    const isBeyond = !one.panel.lists && one.facts[0] && !(one.isNow && one.gone[0]) && one.panel.limits.some((limit) => one.facts[0].last !== null && one.facts[0].last >= limit.at);
    const isOdd = !one.panel.lists && Boolean(one.facts[0] && one.facts[0].odd && value === one.facts[0].odd);
    child.classList.toggle("warn", isBeyond || isOdd);
  }

  function row(line) {
    const swatch = make("i", { "aria-hidden": "true" });
    swatch.style.background = `var(--${line.role})`;
    return make("span", { title: line.label }, swatch, line.mark ? make("span", { class: "mut", "aria-hidden": "true", text: line.mark }) : null, make("span", { class: "sr", text: `${line.label}: ` }), make("b"));
  }

  return { node, show };
}

export function shortened(pen, text, room) {
  let cut = text;
  while (cut.length > 1 && pen.measureText(`${cut}…`).width > room) { cut = cut.slice(0, -1); }
  return cut === text || pen.measureText(text).width <= room ? text : `${cut}…`;
}

// Words in as many rows as they need.
function rows(pen, text, room) {
  const found = [];
  for (const word of text.split(" ")) {
    const longer = found.length ? `${found[found.length - 1]} ${word}` : word;
    if (found.length && pen.measureText(longer).width <= room) { found[found.length - 1] = longer; } else { found.push(word); }
  }
  return found;
}

// The same as text of a file.
/** @param {ChartDocument} doc */
export function writeGutter(pen, doc, one, at, isWhole) {
  const mut = theme.color("mut");
  const [name, value, below] = spokenText(doc, one, isWhole);
  const x = at.isSmall ? 12 : 16;
  pen.textAlign = "left";
  pen.textBaseline = "alphabetic";
  pen.font = chartFont(12.5, 560);
  pen.fillStyle = mut;
  pen.fillText(name, x, one.head + 18);
  const wide = pen.measureText(name).width + 10;
  pen.font = chartFont(at.isSmall ? 16 : 20, 650);
  pen.fillStyle = theme.color("ink");
  pen.fillText(value, at.isSmall ? x + wide : x, one.head + (at.isSmall ? 19 : 41));
  if (at.isSmall) { return; }
  pen.font = chartFont(11.5);
  pen.fillStyle = mut;
  rows(pen, below, GUTTER - 24).forEach((text, nth) => { pen.fillText(shortened(pen, text, GUTTER - 24), x, one.head + 58 + 14 * nth); });
  one.panel.lines.forEach((line, nth) => {
    if (!one.panel.lists) { return; }
    pen.fillStyle = theme.color(line.role);
    const last = lastOf(one, nth);
    const room = GUTTER - 30 - pen.measureText(last).width;
    pen.fillText(`${shortened(pen, line.label, room)} ${last}`, x, one.head + 58 + 14 * nth);
  });
}
