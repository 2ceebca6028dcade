// Small charts on a canvas: one line over the last ten minutes, sharp on any screen, for little work.
// @ts-check
import { canvasPen } from "./pen.js";
import { theme } from "./theme.js";

// Drawn after all text is written: a canvas asks for its width, which after each row's text is a layout each.
const waiting = new Map();
export function drawSparkline(canvas, ...what) {
  if (!waiting.size) {
    queueMicrotask(() => {
      for (const [one, shown] of waiting) { draw(one, ...shown); }
      waiting.clear();
    });
  }
  waiting.set(canvas, what);
}

// times (s) and values (0 to 1, null is a gap), from `end - length` to `end`, in the color of a role.
function draw(canvas, times, values, end, length, role) {
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!width || !height) { return; }
  const pen = canvasPen(canvas, width, height, window.devicePixelRatio || 1);
  const x = (time) => ((time - end) / length + 1) * width;
  const y = (value) => 2 + (1 - Math.max(0, Math.min(1, value))) * (height - 4);
  const lines = [];
  let line = null;
  times.forEach((time, at) => {
    const value = values[at];
    if (value === null || value === undefined || time < end - length) { line = null; return; }
    if (!line) { line = []; lines.push(line); }
    line.push([x(time), y(value)]);
  });
  const fade = pen.createLinearGradient(0, 0, 0, height);
  fade.addColorStop(0, theme.color(role, 0.34));
  fade.addColorStop(1, theme.color(role, 0.04));
  pen.lineJoin = "round";
  for (const points of lines) {
    // The base line ends where nothing was sampled, so that a gap does not look like zero.
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
