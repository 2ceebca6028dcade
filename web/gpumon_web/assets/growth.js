// How the lines of a live chart grow: a sample is a point of its own, or a part of the cell in which it lies.
// @ts-check
/** @import { Line } from "./types" */
import * as format from "./format.js";

const MISSED = 3; // intervals between two samples from which on nothing is known between them

// Puts a sample at `time` behind lines that share their times. `values`: one for each of them, null where there is
// none. `before`: the time of the newest sample that is in the lines, so that each weighs as long as it lasted.
export function appendPoints(lines, values, { time, before, interval }) {
  const { x, step } = lines[0];
  const behind = step ? before : x[x.length - 1];
  if (time <= (behind || 0) + 1e-3) { return; }
  if (!step) { push(lines, time, values); return; }
  const edge = x.length ? x[x.length - 1] + step / 2 : Math.floor(time / step) * step;
  const cells = Math.floor((time - edge) / step) + 1; // that begin up to this sample
  const lasted = time - before;
  const isPause = lasted > MISSED * interval;
  const none = lines.map(() => null);
  // A sample stands for the time since the one before it, also for cells that are shorter than that.
  for (let at = 0; at < cells; at += 1) { push(lines, edge + (at + 0.5) * step, isPause || at === cells - 1 ? none : values); }
  const seconds = isPause ? interval : lasted;
  lines.forEach((line, at) => { if (format.known(values[at])) { fill(line, values[at], seconds); } });
}

function push(lines, time, values) {
  lines[0].x.push(time);
  lines.forEach((line, at) => {
    for (const list of [line.mean, line.low, line.high]) { if (list) { list.push(values[at]); } }
    line.filled = 0;
  });
}

// A part of the newest cell: its mean is one of time.
/** @param {Line} line */
function fill(line, value, seconds) {
  const last = line.x.length - 1;
  const isFirst = !format.known(line.mean[last]);
  const known = isFirst ? 0 : line.filled || 0;
  line.mean[last] = isFirst ? value : (line.mean[last] * known + value * seconds) / (known + seconds);
  if (line.low) {
    line.low[last] = isFirst ? value : Math.min(line.low[last], value);
    line.high[last] = isFirst ? value : Math.max(line.high[last], value);
  }
  line.filled = known + seconds;
}
