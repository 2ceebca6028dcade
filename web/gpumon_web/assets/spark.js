// Sparklines: the last ten minutes of a value in a cell of a table.
// @ts-check
import { make } from "./dom.js";
import { feed } from "./feed.js";
import * as format from "./format.js";
import { canvasPen } from "./pen.js";
import { theme } from "./theme.js";

const WINDOW = 600; // s
const waiting = new Map(); // arguments by canvas

// Shows the mean of series in an element: {series, color or user}.
export function showSparkline(node, value) {
  if (!value) { return; }
  const canvas = node.firstChild || node.appendChild(make("canvas", { class: "spark", "aria-hidden": "true" }));
  const { t: times, lines } = feed.view.series;
  const role = !feed.isFresh() ? "mut" : value.color || theme.ofUser(value.user);
  drawLater(canvas, times, meanOf(value.series.map((name) => lines.get(name) || [])), feed.clock(), role);
}

// The mean of lines at each point; unknown where one of them is.
function meanOf(lines) {
  if (lines.length === 1) { return lines[0]; }
  return lines[0].map((_, at) => (lines.some((line) => !format.known(line[at])) ? null : lines.reduce((sum, line) => sum + line[at], 0) / lines.length));
}

// Draws once all rows have their text: asking a canvas for its width after the text of each row costs a layout per row.
function drawLater(canvas, ...what) {
  if (!waiting.size) {
    queueMicrotask(() => {
      for (const [one, given] of waiting) { draw(one, ...given); }
      waiting.clear();
    });
  }
  waiting.set(canvas, what);
}

// Draws values from 0 to 1 at times up to `end`; null is a gap.
function draw(canvas, times, values, end, role) {
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!width || !height) { return; }
  const pen = canvasPen(canvas, width, height);
  const x = (time) => ((time - end) / WINDOW + 1) * width;
  const y = (value) => 2 + (1 - Math.max(0, Math.min(1, value))) * (height - 4);
  const lines = [];
  let line = null;
  times.forEach((time, at) => {
    const value = values[at];
    if (value === null || value === undefined || time < end - WINDOW) { line = null; return; }
    if (!line) { line = []; lines.push(line); }
    line.push([x(time), y(value)]);
  });
  const fade = pen.createLinearGradient(0, 0, 0, height);
  fade.addColorStop(0, theme.color(role, 0.34));
  fade.addColorStop(1, theme.color(role, 0.04));
  pen.lineJoin = "round";
  for (const points of lines) {
    // The base line has the gaps of the line, so that a gap does not look like zero.
    const [left, right] = [points[0][0], Math.max(points[0][0] + 1, points[points.length - 1][0])];
    pen.fillStyle = theme.color("line");
    pen.fillRect(left, height - 1, right - left, 1);
    pen.beginPath();
    points.forEach(([a, b], at) => (at ? pen.lineTo(a, b) : pen.moveTo(a, b)));
    if (points.length === 1) { pen.lineTo(points[0][0] + 1, points[0][1]); }
    pen.strokeStyle = theme.color(role);
    pen.lineWidth = 1.4;
    pen.stroke();
    pen.lineTo(points[points.length - 1][0], height);
    pen.lineTo(points[0][0], height);
    pen.closePath();
    pen.fillStyle = fade;
    pen.fill();
  }
}
