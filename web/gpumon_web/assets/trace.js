// Lines of charts: a mean with its envelope, broken where nothing was measured.
// @ts-check
/** @import { ChartDocument, Line, Panel } from "./types" */
import * as format from "./format.js";
import { hatchArea } from "./pen.js";
import { theme } from "./theme.js";

const APART = 6; // px between dots at least
const MISSED = 3; // intervals between two samples from which on nothing is known between them
const CELL = 10; // s of a point from which on it is said what it covers
const HATCHED = 12; // px of a gap that is shown as one
const ENDS = 2; // points beyond the ends of a joined line up to which its last value is shown
const WIDE = 14; // px of a stretch that is drawn as a step
const AREA = 0.13;
const BAND = 0.2;

// The first place in `x` whose value is not below `value`.
export function lowerBound(x, value) {
  let low = 0;
  let high = x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] < value) { low = middle + 1; } else { high = middle; }
  }
  return low;
}

// Seconds before a point over which the line is drawn: later points may come less often than the first ones.
/** @param {Line} line */
const reach = (line, at, longest) => (line.x[at] > line.made ? Math.max(longest, MISSED * line.every) : longest);

// Whether nothing is known between a point and the one before it.
/** @param {Line} line */
const breaks = (line, at, longest) => line.x[at] - line.x[at - 1] > reach(line, at, longest);

// Stretches of a line without a gap, as [first, behind the last], within a view and one point beyond it.
/** @param {Line} line */
function stretches(line, from, to, longest) {
  const { x, mean } = line;
  const first = Math.max(0, lowerBound(x, from) - 1);
  const last = Math.min(x.length, lowerBound(x, to) + 1);
  const found = [];
  let begin = -1;
  for (let at = first; at < last; at += 1) {
    const known = mean[at] !== null && mean[at] !== undefined;
    if (begin >= 0 && (!known || breaks(line, at, longest))) { found.push([begin, at]); begin = -1; }
    if (known && begin < 0) { begin = at; }
  }
  if (begin >= 0) { found.push([begin, last]); }
  return found;
}

// Seconds between two points beyond which a line breaks.
/** @param {Line} line */
export const longestGap = (line, interval) => (line.joined ? Infinity : 0) || MISSED * Math.max(line.step || 0, interval || 0) || Infinity;

// The point of a line that is shown at `value`: the nearest one, -1 in a gap and beyond its ends.
/** @param {Line} line */
export function nearestPoint(line, value, longest) {
  const { x, mean } = line;
  const beyond = Math.max(x[0] - value, value - x[x.length - 1], 0);
  if (line.joined && beyond > ENDS * (x[x.length - 1] - x[0]) / x.length) { return -1; }
  const after = lowerBound(x, value);
  let found = after;
  if (after > 0 && (after === x.length || value - x[after - 1] <= x[after] - value)) { found = after - 1; }
  if (found >= x.length || mean[found] === null || mean[found] === undefined) { return -1; }
  return Math.abs(x[found] - value) <= Math.max(reach(line, found, longest) / 2, 1e-9) ? found : -1;
}

// The time that a point of a chart covers, as [from, to]: null of one sample, and of cells no wider than a few of them.
/** @param {ChartDocument} doc @param {Line} line */
export function coveredTime(doc, line, point) {
  if (doc.axis !== "time" || !line.step || point < 0) { return null; }
  const at = line.x[point];
  const [begin, end, step] = (doc.coarse || []).find((one) => one[0] <= at && at < one[1]) || [-Infinity, doc.until || doc.end, line.step];
  if (step < CELL || step <= MISSED * (doc.interval || 0)) { return null; }
  const first = step === line.step ? at - step / 2 : Math.floor(at / step) * step;
  return [Math.max(first, begin), Math.min(first + step, end)];
}

// The newest point of a line that has a value; -1 where none has.
/** @param {Line} line */
export const newestPoint = (line) => line.mean.findLastIndex((value) => format.known(value));

// Extremes, mean and last value of a line within a view, and what it adds up to over the time that is known: `isPartial`
// where that is not all of it.
/** @param {Line} line */
export function lineFacts(line, from, to, longest) {
  let [low, high, plain, seen, area] = [Infinity, -Infinity, 0, 0, 0];
  let last = null;
  let weight = 0; // each sample stands for the time since the one before it
  const first = lowerBound(line.x, from);
  const { step } = line;
  for (let at = first; at < line.x.length; at += 1) {
    // Of the newest cell only a part is over: its middle may be still to come.
    const isPart = step && at === line.x.length - 1 && format.known(line.filled);
    if (line.x[at] - (isPart ? step / 2 : 0) > to) { break; }
    const value = line.mean[at];
    if (value === null || value === undefined || !Number.isFinite(value)) { continue; }
    const lowest = line.low ? line.low[at] : value;
    const highest = line.high ? line.high[at] : value;
    low = Math.min(low, lowest ?? value);
    high = Math.max(high, highest ?? value);
    const follows = at > first && format.known(line.mean[at - 1]) && !breaks(line, at, longest);
    const wide = isPart ? Math.min(line.filled, step) : step || (follows ? line.x[at] - line.x[at - 1] : 0);
    area += value * wide;
    weight += wide;
    plain += value;
    seen += 1;
    last = value;
  }
  // On an axis of nothing but single points each counts alike.
  const odd = line.odd && line.odd[0] <= to ? line.odd[1] : null; // the last one is no number, but that word
  return { low, high, mean: weight ? area / weight : seen ? plain / seen : NaN, last, odd, seen, area, isPartial: gapsOf(line, from, to, longest).length > 0 };
}

// Gaps within a view, as [from, to], of a line that has a place there: the end of a line without values is none.
/** @param {Line} line */
export function gapsOf(line, from, to, longest) {
  const { x } = line;
  const half = (line.step || 0) / 2;
  const first = Math.max(0, lowerBound(x, from) - 1);
  const newest = newestPoint(line);
  const last = Math.min(x.length, lowerBound(x, to) + 1, newest + 1);
  if (first >= last) { return []; }
  const parts = stretches(line, from, to, longest);
  const edges = [x[first] - half, ...parts.flatMap(([begin, end]) => [x[begin] - half, x[end - 1] + half]), x[last - 1] + half];
  const found = edges.flatMap((edge, at) => (at % 2 ? [] : [[edge, edges[at + 1]]]));
  return found.filter(([a, b]) => b > a && b > from && a < to);
}

// Stretches of time without those parts that are in another one, in the order of time.
export function mergedSpans(spans) {
  const found = [];
  for (const [from, to] of [...spans].sort((a, b) => a[0] - b[0])) {
    const before = found[found.length - 1];
    if (before && from <= before[1]) { before[1] = Math.max(before[1], to); } else { found.push([from, to]); }
  }
  return found;
}

// What lies before the first point and behind the last, of something that was there from its begin to its end.
/** @param {Line} line @param {any} doc */
export function endsUnseen({ x, mean, step }, { begin, end, goesOn }, longest) {
  const known = x.filter((_, at) => format.known(mean[at]));
  if (!known.length) { return [[begin, end]]; }
  const [first, last] = [known[0] - step / 2, known[known.length - 1] + step / 2];
  return [[begin, first], ...(goesOn ? [] : [[last, end]])].filter(([from, to]) => to - from > longest);
}

// Stretches of a view in which nothing was sampled. A line that is joined from one logged value to the next has gaps of its own,
// at NaN and where an epoch broke off, and of several lines one may miss what others have: there the document knows when.
/** @param {ChartDocument} doc @param {Panel} panel */
export function unseenIn(doc, panel, { from, to }, longest) {
  const [first] = panel.lines;
  if (first.joined || panel.lists) { return (doc.unseen || []).filter(([a, b]) => b > from && a < to); }
  return [...gapsOf(first, from, to, longest), ...(doc.spans && first.step ? endsUnseen(first, doc, longest) : [])];
}

// Where a line ends before `until`, from when it is not known: its last value, or its first time where it has none; else null.
// A GPU that is `silent` has no value of now, however new its last one is.
/** @param {Line} line */
export function unknownSince(line, until, longest, silent) {
  let at = line.x.length - 1;
  while (at >= 0 && !format.known(line.mean[at])) { at -= 1; }
  if (at < 0) { return silent && line.x.length ? { from: line.x[0], age: NaN } : null; }
  const from = line.x[at] + (line.step || 0) / 2;
  const age = until - from;
  return silent || age > reach(line, at, longest) ? { from, age: Math.max(0, age) } : null;
}

// Who held the GPU from `from` to `to`, without a gap; an empty name in between. The newest samples are ahead of their holder.
/** @param {ChartDocument} doc */
export function heldSpans(doc, { from, to }) {
  const found = [];
  let at = from;
  for (const [begin, end, user] of doc.held) {
    if (end <= at || begin >= to) { continue; }
    if (begin > at) { found.push([at, begin, ""]); }
    found.push([Math.max(begin, at), Math.min(end, to), user]);
    at = end;
  }
  const goesOn = doc.goesOn && found.length && to - at <= MISSED * (doc.pace || doc.interval || 1);
  if (at < to) { found.push([at, to, goesOn ? found[found.length - 1][2] : ""]); }
  return found;
}

// `scale`: {x, y, base, from, to}; y of the base line where areas are filled, else undefined.
export function drawTrace(pen, given, scale, longest, color) {
  const line = stairs(given, scale);
  const { x, mean, low, high } = line;
  const lone = [];
  for (const [begin, end] of stretches(line, scale.from, scale.to, longest)) {
    if (line.look !== "dots") {
      if (low && high) { envelope(pen, line, begin, end, scale, color); }
      if (end - begin === 1) { lone.push(begin); continue; }
      const path = () => {
        pen.beginPath();
        pen.moveTo(scale.x(x[begin]), scale.y(mean[begin]));
        for (let at = begin + 1; at < end; at += 1) { pen.lineTo(scale.x(x[at]), scale.y(mean[at])); }
      };
      if (scale.base !== undefined && line.look !== "thin") {
        path();
        pen.lineTo(scale.x(x[end - 1]), scale.base);
        pen.lineTo(scale.x(x[begin]), scale.base);
        pen.closePath();
        pen.fillStyle = color(AREA);
        pen.fill();
      }
      path();
    } else {
      pen.beginPath();
      pen.moveTo(scale.x(x[begin]), scale.y(mean[begin]));
      for (let at = begin + 1; at < end; at += 1) { pen.lineTo(scale.x(x[at]), scale.y(mean[at])); }
      // Dots that are close would melt into a rope: the line between them says as much.
      if (end - begin < 2 || (scale.x(x[end - 1]) - scale.x(x[begin])) / (end - begin - 1) >= APART) {
        for (let at = begin; at < end; at += 1) { lone.push(at); }
        pen.setLineDash([1.5, 3]);
      }
    }
    pen.strokeStyle = color();
    pen.lineWidth = line.look ? 1 : 1.5;
    pen.lineJoin = "round";
    pen.stroke();
    pen.setLineDash([]);
  }
  pen.fillStyle = color();
  const size = line.look === "dots" ? 2.6 : 1.8;
  let last = -Infinity;
  for (const at of lone) {
    const left = scale.x(x[at]);
    if (left - last < size) { continue; }
    last = left;
    pen.beginPath();
    pen.arc(left, scale.y(mean[at]), size, 0, 2 * Math.PI);
    pen.fill();
  }
}

// Where a stretch is wide, its mean from end to end: a slope from one to the next would make hours of a second.
/** @param {Line} line */
function stairs(line, scale) {
  if (!line.step || scale.x(line.step) - scale.x(0) < WIDE) { return line; }
  const half = line.step / 2;
  const twice = (values) => values && values.flatMap((value) => [value, value]);
  return { ...line, x: line.x.flatMap((at) => [at - half, at + half]), mean: twice(line.mean), low: twice(line.low), high: twice(line.high) };
}

/** @param {any} pen @param {Line} line */
function envelope(pen, { x, low, high, mean }, begin, end, scale, color) {
  const wide = end - begin === 1 ? 1 : 0;
  pen.beginPath();
  for (let at = begin; at < end; at += 1) { pen.lineTo(scale.x(x[at]) - wide, scale.y(high[at] ?? mean[at])); }
  for (let at = end - 1; at >= begin; at -= 1) { pen.lineTo(scale.x(x[at]) + wide, scale.y(low[at] ?? mean[at])); }
  pen.closePath();
  pen.fillStyle = color(BAND);
  pen.fill();
}

// What was not seen; whether it is wide enough to be shown.
export function drawHatch(pen, left, right, top, height) {
  if (right - left < HATCHED) { return false; }
  hatchArea(pen, { left, right, top, height }, 7, theme.color("mut", 0.35));
  return true;
}
