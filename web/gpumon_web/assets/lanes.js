// The lanes above the panels of a chart: epochs as a ribbon for each run, and events with a shape and words.
// @ts-check
/** @import { RunRibbon } from "./types" */
import * as format from "./format.js";
import { drawMark } from "./pen.js";
import { axisScale } from "./scale.js";
import { theme } from "./theme.js";

export const RIBBON = 14;
const TINT = 0.24;
const PHASE = 0.45;
const VEIL = 0.06;
const MANY = 200; // epochs in view above which they are drawn in tens
const TOGETHER = 14; // px within which events are one
const SPARSE = 48; // px that each line of events has of the width at least
const EVERY = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];

export const chartFont = (size, weight) => `${weight || 450} ${size}px ${getComputedStyle(document.body).fontFamily}`;
const roleOf = (level) => ({ warn: "warn", bad: "bad", ok: "ok" })[level] || "acc";

// The number of the last epoch of a band: of a long run, one stands for several.
export const lastOf = (band) => band[4] ?? band[2];
const numbers = (first, last) => (first === last ? String(first) : `${axisScale.grouped(String(first))}–${axisScale.grouped(String(last))}`);

// The epochs in view; of very many, tens or hundreds as one.
function grouped(bands, from, to) {
  const seen = bands.filter(([begin, end]) => end > from && begin < to);
  if (seen.length <= MANY) { return { bands: seen.map(([begin, end, number, level, last = number]) => ({ begin, end, text: numbers(number, last), number, level })), isEach: seen.every((one) => lastOf(one) === one[2]) }; }
  const count = Math.max(seen.length, lastOf(seen[seen.length - 1]) - seen[0][2] + 1);
  const every = EVERY.find((one) => one >= 10 && count / one <= MANY) || EVERY[EVERY.length - 1];
  const found = [];
  for (const band of seen) {
    const [begin, end, number, level] = band;
    const last = found[found.length - 1];
    const tens = Math.floor(number / every);
    if (last && last.tens === tens) { last.end = end; last.to = lastOf(band); last.level = last.level || level; } else { found.push({ begin, end, tens, number, to: lastOf(band), level }); }
  }
  return { bands: found.map((one) => ({ ...one, text: numbers(one.number, one.to) })), isEach: false };
}

// `area`: {x, from, to, left, right}
/** @param {RunRibbon} run */
export function drawRibbon(pen, run, top, area, color) {
  const { bands, isEach } = grouped(run.bands, area.from, area.to);
  const left = (time) => Math.max(area.left, area.x(time));
  const right = (time) => Math.min(area.right, area.x(time));
  pen.save();
  pen.beginPath();
  pen.rect(area.left, top, area.right - area.left, RIBBON);
  pen.clip();
  for (const band of bands) {
    const [a, b] = [left(band.begin), right(band.end)];
    pen.fillStyle = band.level ? theme.color(roleOf(band.level), 0.36) : color(TINT);
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
  const widest = bands.length ? pen.measureText(bands[bands.length - 1].text).width + 8 : 0;
  const each = bands.length ? (right(bands[bands.length - 1].end) - left(bands[0].begin)) / bands.length : 0;
  const every = EVERY.find((one) => one * each >= widest) || EVERY[EVERY.length - 1];
  bands.forEach((band, at) => {
    const wide = pen.measureText(band.text).width;
    const [begin, end] = [left(band.begin), right(band.end)];
    const middle = (begin + end) / 2;
    if (every === 1 ? end - begin < wide + 6 : (isEach ? band.number : at) % every !== 0) { return; }
    // Cut at an edge, "0–19" would be "-19".
    if (middle - wide / 2 >= area.left && middle + wide / 2 <= area.right) { pen.fillText(band.text, middle, top + RIBBON / 2 + 0.5); }
  });
  pen.restore();
  return isEach;
}

// Boundaries and phases of a run behind one panel.
/** @param {RunRibbon} run */
export function drawBehind(pen, run, top, height, area, isEach) {
  pen.fillStyle = theme.color("mut", VEIL * 2);
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

// Events in view, those that lie close together as one.
export function eventsIn(events, area) {
  const found = [];
  for (const one of events) {
    if (one.time < area.from || one.time > area.to) { continue; }
    const x = area.x(one.time);
    const last = found[found.length - 1];
    if (last && x - last.x < TOGETHER) {
      last.all.push(one);
      last.count += one.count || 1;
      if (one.level === "bad" || (one.level === "warn" && last.level !== "bad")) { last.level = one.level; }
    } else { found.push({ x, level: one.level, all: [one], count: one.count || 1 }); }
  }
  return found;
}

export function eventLane(pen, found, y, area, isSmall) {
  pen.font = chartFont(11);
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  found.forEach((one, at) => {
    drawMark(pen, one.level, one.x, y, theme.color(roleOf(one.level)));
    const text = one.all.length > 1 ? `${format.count(one.count)} events` : one.all[0].text;
    const count = one.count > 1 ? format.count(one.count) : "";
    const room = (at + 1 < found.length ? found[at + 1].x - 10 : area.right) - one.x - 9;
    pen.fillStyle = theme.color("mut");
    const wide = pen.measureText(text).width;
    if (!isSmall && wide <= room) { pen.fillText(text, one.x + 9, y + 0.5); } else if (count && room > 8) { pen.fillText(count, one.x + 7, y + 0.5); }
  });
}

// So many lines across all panels would be a fence before the values: the lane above has the events.
export const isFence = (found, area) => found.length * SPARSE > area.right - area.left;

export function eventLines(pen, found, top, bottom) {
  for (const one of found) {
    pen.strokeStyle = theme.color(roleOf(one.level), 0.7);
    pen.lineWidth = 1;
    pen.setLineDash([2, 3]);
    pen.beginPath();
    pen.moveTo(Math.round(one.x) + 0.5, top);
    pen.lineTo(Math.round(one.x) + 0.5, bottom);
    pen.stroke();
    pen.setLineDash([]);
  }
}

// The epoch and the phase of a run at a time, in words; of a mean over `cell`, all epochs that it is of, and no phase of several.
/** @param {RunRibbon} run */
export function epochAt(run, time, cell = null) {
  const within = cell ? run.bands.filter(([begin, end]) => begin < cell[1] && end > cell[0]) : [];
  const number = (band) => axisScale.grouped(String(band[2]));
  const band = run.bands.find(([begin, end]) => begin <= time && time <= end);
  const [first, last] = within.length > 1 ? [within[0], within[within.length - 1]] : [band, band];
  if (!band && within.length < 2) { return ""; }
  if (lastOf(last) !== first[2]) { return `epochs ${number(first)} to ${axisScale.grouped(String(lastOf(last)))}`; }
  const phase = run.phases.find(([begin, end]) => begin <= time && time < end);
  if (cell && run.phases.some((one) => one !== phase && one[0] < cell[1] && one[1] > cell[0])) { return `epoch ${number(band)}`; }
  if (cell && phase && (phase[0] > cell[0] || phase[1] < cell[1])) { return `epoch ${number(band)}`; }
  return `epoch ${number(band)} · ${phase && phase[2] ? phase[2] : run.training || "train"}`;
}
