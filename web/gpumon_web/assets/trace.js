// Lines of charts: a mean with its lowest and highest values, interrupted where nothing was measured.
// @ts-check
/** @import { ChartDocument, Line, Panel } from "./types" */
import * as format from "./format.js";

const APART = 6; // px between dots at least
export const MISSED = 3; // intervals between two samples from which on nothing is known between them
const LONG_CELL = 10; // s of a point from which on the time that it covers is shown
const ENDS = 2; // mean distances of points for which the last value of a joined line is shown beyond its end
const WIDE = 14; // px of a point from which on it is drawn as a step
const AREA = 0.13; // opacities
const RANGE = 0.2;

// The index of the first value in `x` that is not below `value`.
export function lowerBound(x, value) {
  let low = 0;
  let high = x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] < value) { low = middle + 1; } else { high = middle; }
  }
  return low;
}

// Seconds before a point over which the line is drawn. Points that the page appended may be further apart than the others.
/** @param {Line} line */
const reach = (line, at, longest) => (line.x[at] > line.made ? Math.max(longest, MISSED * line.every) : longest);

// Whether nothing is known between a point and the one before it.
/** @param {Line} line */
const breaks = (line, at, longest) => line.x[at] - line.x[at - 1] > reach(line, at, longest);

// Stretches of a line without a gap, as [first, last + 1], in a view and one point beyond it.
/** @param {Line} line */
function stretches(line, from, to, longest) {
  const { x, mean } = line;
  const first = Math.max(0, lowerBound(x, from) - 1);
  const last = Math.min(x.length, lowerBound(x, to) + 1);
  const parts = [];
  let begin = -1;
  for (let at = first; at < last; at += 1) {
    const isKnown = mean[at] !== null && mean[at] !== undefined;
    if (begin >= 0 && (!isKnown || breaks(line, at, longest))) { parts.push([begin, at]); begin = -1; }
    if (isKnown && begin < 0) { begin = at; }
  }
  if (begin >= 0) { parts.push([begin, last]); }
  return parts;
}

// Seconds between two points beyond which a line is interrupted.
/** @param {Line} line */
export const longestGap = (line, interval) => (line.joined ? Infinity : 0) || MISSED * Math.max(line.step || 0, interval || 0) || Infinity;

// The index of the point of a line that is shown at a value of the axis: the nearest one; -1 in a gap and beyond the ends.
/** @param {Line} line */
export function nearestPoint(line, value, longest) {
  const { x, mean } = line;
  const beyond = Math.max(x[0] - value, value - x[x.length - 1], 0);
  if (line.joined && beyond > ENDS * (x[x.length - 1] - x[0]) / x.length) { return -1; }
  const after = lowerBound(x, value);
  const nearest = after > 0 && (after === x.length || value - x[after - 1] <= x[after] - value) ? after - 1 : after;
  if (nearest >= x.length || mean[nearest] === null || mean[nearest] === undefined) { return -1; }
  return Math.abs(x[nearest] - value) <= Math.max(reach(line, nearest, longest) / 2, 1e-9) ? nearest : -1;
}

// The time that a point covers, as [from, to]; null if it is a sample or a mean of few samples.
/** @param {ChartDocument} doc @param {Line} line */
export function coveredTime(doc, line, point) {
  if (doc.axis !== "time" || !line.step || point < 0) { return null; }
  const at = line.x[point];
  const [begin, end, step] = (doc.coarse || []).find((one) => one[0] <= at && at < one[1]) || [-Infinity, doc.until || doc.end, line.step];
  if (step < LONG_CELL || step <= MISSED * (doc.interval || 0)) { return null; }
  const first = step === line.step ? at - step / 2 : Math.floor(at / step) * step;
  return [Math.max(first, begin), Math.min(first + step, end)];
}

// The index of the newest point with a value; -1 if there is none.
/** @param {Line} line */
export const newestPoint = (line) => line.mean.findLastIndex((value) => format.known(value));

// Facts about a line in a view: `low`, `high`, `mean`, the `last` value, `odd` if the last one is NaN or infinite, `seen` values,
// and the `area` below the line over the time that is known; `isPartial` if that is not the whole view.
/** @param {Line} line */
export function lineFacts(line, from, to, longest) {
  let [low, high, plain, seen, area] = [Infinity, -Infinity, 0, 0, 0];
  let last = null;
  let weight = 0; // s: each sample counts for the time since the one before it
  const first = lowerBound(line.x, from);
  const { step } = line;
  for (let at = first; at < line.x.length; at += 1) {
    // The newest cell may have begun only just, so that its middle is in the future.
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
  const odd = line.odd && line.odd[0] <= to ? line.odd[1] : null;
  const mean = weight ? area / weight : seen ? plain / seen : NaN; // single points have no time to count for
  return { low, high, mean, last, odd, seen, area, isPartial: gapsOf(line, from, to, longest).length > 0 };
}

// Gaps of a line in a view, as [from, to]. The time behind its newest value is none of them.
/** @param {Line} line */
export function gapsOf(line, from, to, longest) {
  const { x } = line;
  const half = (line.step || 0) / 2;
  const first = Math.max(0, lowerBound(x, from) - 1);
  const newest = newestPoint(line);
  const last = Math.min(x.length, lowerBound(x, to) + 1, newest + 1);
  if (first >= last) { return []; }
  const known = stretches(line, from, to, longest).flatMap(([begin, end]) => [x[begin] - half, x[end - 1] + half]);
  const edges = [x[first] - half, ...known, x[last - 1] + half];
  const gaps = edges.flatMap((edge, at) => (at % 2 ? [] : [[edge, edges[at + 1]]]));
  return gaps.filter(([a, b]) => b > a && b > from && a < to);
}

// Spans of time in their order, those that overlap as one.
export function mergedSpans(spans) {
  const merged = [];
  for (const [from, to] of [...spans].sort((a, b) => a[0] - b[0])) {
    const before = merged[merged.length - 1];
    if (before && from <= before[1]) { before[1] = Math.max(before[1], to); } else { merged.push([from, to]); }
  }
  return merged;
}

// The times before the first value and behind the last one, of a run, which lasted from begin to end whether it was sampled or
// not. What comes behind the last value of a run that goes on may be on its way.
/** @param {Line} line @param {any} doc */
export function endsUnseen({ x, mean, step }, { begin, end, goesOn }, longest) {
  const known = x.filter((_, at) => format.known(mean[at]));
  if (!known.length) { return [[begin, end]]; }
  const [first, last] = [known[0] - step / 2, known[known.length - 1] + step / 2];
  return [[begin, first], ...(goesOn ? [] : [[last, end]])].filter(([from, to]) => to - from > longest);
}

// The times of a view in which nothing was sampled. Logged values are interrupted at a NaN and where an epoch was aborted, and
// of several lines one may lack what others have: for these the document says when nothing was sampled.
/** @param {ChartDocument} doc @param {Panel} panel */
export function unseenIn(doc, panel, { from, to }, longest) {
  const [first] = panel.lines;
  if (first.joined || panel.lists) { return (doc.unseen || []).filter(([a, b]) => b > from && a < to); }
  return [...gapsOf(first, from, to, longest), ...(doc.spans && first.step ? endsUnseen(first, doc, longest) : [])];
}

// Since when a line is unknown, as {from, age}, if it ends before `until`; else null. It is unknown since its last value, or since
// its first time if it has no value. A GPU that is `silent` has no current value, however new its last one is.
/** @param {Line} line */
export function unknownSince(line, until, longest, silent) {
  const at = newestPoint(line);
  if (at < 0) { return silent && line.x.length ? { from: line.x[0], age: NaN } : null; }
  const from = line.x[at] + (line.step || 0) / 2;
  const age = until - from;
  return silent || age > reach(line, at, longest) ? { from, age: Math.max(0, age) } : null;
}

// Who held the GPU in a view: [from, to, user] without a gap; the user is empty if nobody did. The newest samples belong to the
// last holder, of whom the server tells a little later.
/** @param {ChartDocument} doc */
export function heldSpans(doc, { from, to }) {
  const spans = [];
  let at = from;
  for (const [begin, end, user] of doc.held) {
    if (end <= at || begin >= to) { continue; }
    if (begin > at) { spans.push([at, begin, ""]); }
    spans.push([Math.max(begin, at), Math.min(end, to), user]);
    at = end;
  }
  const goesOn = doc.goesOn && spans.length && to - at <= MISSED * (doc.pace || doc.interval || 1);
  if (at < to) { spans.push([at, to, goesOn ? spans[spans.length - 1][2] : ""]); }
  return spans;
}

// Draws a line. `scale`: {x, y, from, to, base}; below a line with a `base` the area is filled down to that y.
export function drawTrace(pen, given, scale, longest, color) {
  const line = stairs(given, scale);
  const { x, mean, low, high } = line;
  const isDots = line.look === "dots";
  const dots = []; // points that are drawn as dots
  for (const [begin, end] of stretches(line, scale.from, scale.to, longest)) {
    if (!isDots && low && high) { drawRange(pen, line, begin, end, scale, color); }
    if (!isDots && end - begin === 1) { dots.push(begin); continue; }
    const path = () => {
      pen.beginPath();
      pen.moveTo(scale.x(x[begin]), scale.y(mean[begin]));
      for (let at = begin + 1; at < end; at += 1) { pen.lineTo(scale.x(x[at]), scale.y(mean[at])); }
    };
    if (!line.look && scale.base !== undefined) {
      path();
      pen.lineTo(scale.x(x[end - 1]), scale.base);
      pen.lineTo(scale.x(x[begin]), scale.base);
      pen.closePath();
      pen.fillStyle = color(AREA);
      pen.fill();
    }
    path();
    // Dots that are close to each other would look like a thick line, so that a thin one is drawn.
    if (isDots && (end - begin < 2 || (scale.x(x[end - 1]) - scale.x(x[begin])) / (end - begin - 1) >= APART)) {
      for (let at = begin; at < end; at += 1) { dots.push(at); }
      pen.setLineDash([1.5, 3]);
    }
    pen.strokeStyle = color();
    pen.lineWidth = line.look ? 1 : 1.5;
    pen.lineJoin = "round";
    pen.stroke();
    pen.setLineDash([]);
  }
  pen.fillStyle = color();
  const size = isDots ? 2.6 : 1.8;
  let last = -Infinity;
  for (const at of dots) {
    const left = scale.x(x[at]);
    if (left - last < size) { continue; }
    last = left;
    pen.beginPath();
    pen.arc(left, scale.y(mean[at]), size, 0, 2 * Math.PI);
    pen.fill();
  }
}

// A line whose points are wide, with steps: a slope from one point to the next would look like hours of change.
/** @param {Line} line */
function stairs(line, scale) {
  if (!line.step || scale.x(line.step) - scale.x(0) < WIDE) { return line; }
  const half = line.step / 2;
  const twice = (values) => values && values.flatMap((value) => [value, value]);
  return { ...line, x: line.x.flatMap((at) => [at - half, at + half]), mean: twice(line.mean), low: twice(line.low), high: twice(line.high) };
}

// Draws the lowest to the highest values of a stretch.
/** @param {any} pen @param {Line} line */
function drawRange(pen, { x, low, high, mean }, begin, end, scale, color) {
  const half = end - begin === 1 ? 1 : 0;
  pen.beginPath();
  for (let at = begin; at < end; at += 1) { pen.lineTo(scale.x(x[at]) - half, scale.y(high[at] ?? mean[at])); }
  for (let at = end - 1; at >= begin; at -= 1) { pen.lineTo(scale.x(x[at]) + half, scale.y(low[at] ?? mean[at])); }
  pen.closePath();
  pen.fillStyle = color(RANGE);
  pen.fill();
}
