// The lanes above the panels of a chart: epochs as a ribbon for each run, and events as marks with words.
// @ts-check
/** @import { RunRibbon } from "./types" */
import * as format from "./format.js";
import { drawMark } from "./pen.js";
import { theme } from "./theme.js";

export const RIBBON = 14; // px
const BAND = 0.24; // opacities
const PHASE = 0.45;
const PHASE_BEHIND = 0.12;
const MANY = 200; // epochs in view above which several are drawn as one
const TOGETHER = 14; // px within which events are drawn as one
const SPARSE = 48; // px of the width for each line of an event, at least
const EVERY = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];

export const chartFont = (size, weight = 450) => `${weight} ${size}px ${getComputedStyle(document.body).fontFamily}`;
const roleOf = (level) => (["warn", "bad", "ok"].includes(level) ? level : "acc");

// The number of the last epoch of a band; of a long run, a band may be several epochs.
export const lastOf = (band) => band[4] ?? band[2];
const number = (epoch) => format.grouped(String(epoch));
const numbers = (first, last) => (first === last ? String(first) : `${number(first)}–${number(last)}`);

// The bands in view: {begin, end, first, last, level, text}; if there are many, tens or hundreds of epochs as one. `isEach`: each
// band is a single epoch.
function bandsInView(bands, from, to) {
  const seen = bands.filter(([begin, end]) => end > from && begin < to);
  const count = seen.length && Math.max(seen.length, lastOf(seen[seen.length - 1]) - seen[0][2] + 1);
  const every = seen.length <= MANY ? 0 : EVERY.find((one) => one >= 10 && count / one <= MANY) || EVERY[EVERY.length - 1];
  const merged = [];
  for (const band of seen) {
    const [begin, end, first, level] = band;
    const group = every && Math.floor(first / every);
    const before = merged[merged.length - 1];
    if (every && before && before.group === group) { Object.assign(before, { end, last: lastOf(band), level: before.level || level }); }
    else { merged.push({ begin, end, first, last: lastOf(band), level, group }); }
  }
  return { bands: merged.map((one) => ({ ...one, text: numbers(one.first, one.last) })), isEach: !every && merged.every((one) => one.first === one.last) };
}

// Draws the epochs and phases of a run. `area`: {x, from, to, left, right}. Returns whether each band is a single epoch.
/** @param {RunRibbon} run */
export function drawRibbon(pen, run, top, area, color) {
  const { bands, isEach } = bandsInView(run.bands, area.from, area.to);
  const left = (time) => Math.max(area.left, area.x(time));
  const right = (time) => Math.min(area.right, area.x(time));
  pen.save();
  pen.beginPath();
  pen.rect(area.left, top, area.right - area.left, RIBBON);
  pen.clip();
  for (const band of bands) {
    const [a, b] = [left(band.begin), right(band.end)];
    pen.fillStyle = band.level ? theme.color(roleOf(band.level), 0.36) : color(BAND);
    pen.fillRect(a, top, Math.max(0.5, b - a - (b - a > 4 ? 1 : 0)), RIBBON);
  }
  pen.fillStyle = color(PHASE);
  for (const [begin, end] of run.phases) {
    if (end > area.from && begin < area.to && right(end) - left(begin) > 1) { pen.fillRect(left(begin), top, right(end) - left(begin) - 1, RIBBON); }
  }
  pen.font = chartFont(10.5, 650);
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.fillStyle = theme.color("ink");
  const last = bands[bands.length - 1];
  const each = bands.length ? (right(last.end) - left(bands[0].begin)) / bands.length : 0; // px of a band
  const every = EVERY.find((one) => one * each >= (last ? pen.measureText(last.text).width + 8 : 0)) || EVERY[EVERY.length - 1];
  bands.forEach((band, at) => {
    const width = pen.measureText(band.text).width;
    const [begin, end] = [left(band.begin), right(band.end)];
    if (every === 1 ? end - begin < width + 6 : (isEach ? band.first : at) % every !== 0) { return; }
    const middle = (begin + end) / 2;
    // A number that would be cut at an edge is left out: "0–19" would become "-19".
    if (middle - width / 2 >= area.left && middle + width / 2 <= area.right) { pen.fillText(band.text, middle, top + RIBBON / 2 + 0.5); }
  });
  pen.restore();
  return isEach;
}

// Draws the phases of a run behind a panel, and the begins of its epochs if each band is one.
/** @param {RunRibbon} run */
export function drawBoundaries(pen, run, top, height, area, isEach) {
  pen.fillStyle = theme.color("mut", PHASE_BEHIND);
  for (const [begin, end] of run.phases) {
    if (end <= area.from || begin >= area.to) { continue; }
    const a = Math.max(area.left, area.x(begin));
    const b = Math.min(area.right, area.x(end));
    if (b - a > 1) { pen.fillRect(a, top, b - a, height); }
  }
  if (!isEach) { return; }
  pen.fillStyle = theme.color("line");
  for (const [begin] of run.bands) { if (begin > area.from && begin < area.to) { pen.fillRect(Math.round(area.x(begin)), top, 1, height); } }
}

// The events in view, those that lie close together as one.
export function eventsIn(events, area) {
  const marks = [];
  for (const event of events) {
    if (event.time < area.from || event.time > area.to) { continue; }
    const x = area.x(event.time);
    const last = marks[marks.length - 1];
    if (last && x - last.x < TOGETHER) {
      last.all.push(event);
      last.count += event.count || 1;
      if (event.level === "bad" || (event.level === "warn" && last.level !== "bad")) { last.level = event.level; }
    } else { marks.push({ x, level: event.level, all: [event], count: event.count || 1 }); }
  }
  return marks;
}

// Draws events with their words, or with their number if there is no room for words.
export function drawEvents(pen, marks, y, area, isSmall) {
  pen.font = chartFont(11);
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  marks.forEach((one, at) => {
    drawMark(pen, one.level, one.x, y, theme.color(roleOf(one.level)));
    const text = one.all.length > 1 ? `${format.count(one.count)} events` : one.all[0].text;
    const room = (at + 1 < marks.length ? marks[at + 1].x - 10 : area.right) - one.x - 9;
    pen.fillStyle = theme.color("mut");
    if (!isSmall && pen.measureText(text).width <= room) { pen.fillText(text, one.x + 9, y + 0.5); }
    else if (one.count > 1 && room > 8) { pen.fillText(format.count(one.count), one.x + 7, y + 0.5); }
  });
}

// Whether lines of so many events would hide the values.
export const hasTooManyLines = (marks, area) => marks.length * SPARSE > area.right - area.left;

export function drawEventLines(pen, marks, top, bottom) {
  pen.setLineDash([2, 3]);
  pen.lineWidth = 1;
  for (const one of marks) {
    pen.strokeStyle = theme.color(roleOf(one.level), 0.7);
    pen.beginPath();
    pen.moveTo(Math.round(one.x) + 0.5, top);
    pen.lineTo(Math.round(one.x) + 0.5, bottom);
    pen.stroke();
  }
  pen.setLineDash([]);
}

// The epoch and the phase of a run at a time: `epoch 12 · train`. If the value there is a mean over a `cell` of time: all epochs of
// the cell, and no phase if the cell has several.
/** @param {RunRibbon} run */
export function epochAt(run, time, cell = null) {
  const within = cell ? run.bands.filter(([begin, end]) => begin < cell[1] && end > cell[0]) : [];
  const band = run.bands.find(([begin, end]) => begin <= time && time <= end);
  const [first, last] = within.length > 1 ? [within[0], within[within.length - 1]] : [band, band];
  if (!first) { return ""; }
  if (lastOf(last) !== first[2]) { return `epochs ${number(first[2])} to ${number(lastOf(last))}`; }
  const phase = run.phases.find(([begin, end]) => begin <= time && time < end);
  const others = cell ? run.phases.filter((one) => one !== phase && one[0] < cell[1] && one[1] > cell[0]) : [];
  const isPart = cell && phase && (phase[0] > cell[0] || phase[1] < cell[1]);
  return others.length || isPart ? `epoch ${number(first[2])}` : `epoch ${number(first[2])} · ${phase && phase[2] ? phase[2] : run.training || "train"}`;
}
