// Beside a panel of a chart: the values of its axis, and what it was in the view.
// @ts-check
/** @import { ChartDocument, Panel } from "./types" */
import { hide, make } from "./dom.js";
import * as format from "./format.js";
import { axisScale } from "./scale.js";
import { coveredTime, newestPoint } from "./trace.js";

const ROOM = 1.1; // times the highest value that an axis reaches
const NARROWEST = 330; // px of a chart up to which the peak of a memory has no room beside it
const ROOM_OF_WORDS = 1.2; // where the words of a limit stand above its line

// The range of values of a panel, with room above, and with its limits in it; and whether anything in it is known.
/** @param {Panel} panel @returns {[number, number, boolean]} */
export function valueRange(panel, all) {
  const low = Math.min(...all.map((one) => one.low));
  const high = Math.max(...all.map((one) => one.high));
  const limits = panel.limits.map((one) => one.at);
  const known = Number.isFinite(low) && Number.isFinite(high);
  if (panel.zero) {
    const top = Math.max(format.known(panel.top) ? panel.top : known ? high : 0, known ? high : 0, ...limits);
    const room = panel.unit === "ratio" ? 1.04 : limits.length ? ROOM_OF_WORDS : ROOM;
    return [0, (top || 1) * room, known || format.known(panel.top) || limits.length > 0];
  }
  if (!known) { return [0, 1, false]; }
  const top = Math.max(high, ...limits);
  const span = Math.max(top - low, axisScale.least(panel.unit) || Math.abs(top) / 10 || 1);
  const under = low - (span - (top - low)) / 2;
  return [under - span / 8, under + span + span / (limits.length ? 5 : 8), true];
}

// The legend of the hatch below a chart; returns a function that shows or hides it.
export function unseenKey(place) {
  const key = make("p", { class: "key hatchkey", hidden: true }, make("i", { class: "k-unseen", "aria-hidden": "true" }), "not seen");
  place.after(key);
  return (isHatched) => hide(key, !isHatched);
}

// Of a newest value that is no sample but a cell of hours: what it covers.
/** @param {ChartDocument} doc */
export function coverage(doc, { panel, isNow }) {
  const cell = isNow && panel.lines.length ? coveredTime(doc, panel.lines[0], newestPoint(panel.lines[0])) : null;
  return cell ? `mean within the last ${format.span(cell[1] - cell[0])}` : "";
}

// What has a row of its own above a small panel: that, and what a thin line is, which has no room beside the value.
/** @param {ChartDocument} doc */
export const smallPanelNote = (doc, one) => [coverage(doc, one), thinLineNote(one.panel)].filter(Boolean).join(" · ");

// Whether what else is said of a small panel stands in that row: beside a long name and an amount there is no room.
/** @param {Panel} panel */
export const isNoteBelow = (panel, width) => Boolean(thinLineNote(panel)) || (width < NARROWEST && panel.unit === "bytes");

/** @param {Panel} panel */
export function thinLineNote(panel) {
  const line = panel.lines.find((one) => one.look === "thin" && one.label);
  return line ? `thin\u00a0line:\u00a0${line.label}` : "";
}

// How many values of lines stand in a row above a small panel: fewer where they have longer names.
/** @param {Panel} panel */
export const inRow = (panel) => (panel.lines.some((line) => line.mark && line.mark.length > 2) ? 2 : 3);

// What stands below the value of a panel: what it was in the view. Where it is small, no more than has room there.
/** @param {Panel} panel */
export function panelContext(panel, facts, isWhole, isSmall) {
  const write = (value) => axisScale.write(panel.unit, value);
  if (panel.below) { return panel.shade && !isSmall ? `${panel.below}, shade: ${panel.shade}` : panel.below; }
  if (!facts.seen) { return facts.odd ? "no number in this window" : "no values in this window"; }
  // Of the whole it may be known better than by its points, as the page says it elsewhere.
  const counted = isWhole && format.known(panel.whole);
  const mean = counted ? panel.whole : facts.mean;
  const peak = counted ? Math.max(panel.whole, facts.high) : facts.high; // a point may be newer
  if (panel.unit === "bytes" && format.known(panel.top)) { return isSmall ? `peak ${write(peak)}` : `of ${write(panel.top)} · peak ${write(peak)}`; }
  // The energy of the whole run is counted and shown elsewhere; the sum of the points would be another number.
  if (panel.unit === "watts") { return `mean ${write(mean)}${panel.counted && isWhole ? "" : ` · ${facts.isPartial ? "≥\u00a0" : ""}${format.joules(facts.area)}`}`; }
  if (panel.unit === "celsius") { return `max ${write(peak)}`; }
  if (panel.unit === "plain") { return isWhole ? `lowest ${write(facts.low)}` : `${write(facts.low)} to ${write(facts.high)}`; }
  return `mean ${write(mean)}`;
}
