// The whole of a long run above its chart: one line, its slow epochs as a row of heat, and a window to draw and to move.
// @ts-check
import { hide, make } from "./dom.js";
import { chartFont, lastOf } from "./lanes.js";
import { canvasPen } from "./pen.js";
import { axes } from "./scale.js";
import { theme } from "./theme.js";
import { clampRange } from "./tools.js";
import { drawTrace, lineFacts, longestGap } from "./trace.js";

const FROM = 60; // epochs from which on a run is long
const TALL = 56;
const HEAT = 12;
const SIDE = 16;
const LEAST = 6;

export function overview(go) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  const node = make("div", { class: "overview", hidden: true }, canvas);
  let doc = null;
  let range = null;
  let grip = null; // {from: px, window: [from, to] or null}

  const wide = () => node.clientWidth - 2 * SIDE;
  const x = (value) => SIDE + ((value - doc.begin) / (doc.end - doc.begin || 1)) * wide();
  const value = (at) => doc.begin + ((Math.max(SIDE, Math.min(SIDE + wide(), at)) - SIDE) / wide()) * (doc.end - doc.begin);
  const local = (event) => event.clientX - node.getBoundingClientRect().left;

  function draw() {
    if (!doc || !node.clientWidth) { return; }
    const width = node.clientWidth;
    const pen = canvasPen(canvas, width, TALL + HEAT + 26);
    const run = doc.runs[0];
    const color = (opacity) => theme.color(theme.ofUser(run.user), opacity);
    const panel = doc.panels[0];
    const line = panel.lines[0];
    const longest = longestGap(line, doc.interval);
    const facts = lineFacts(line, doc.begin, doc.end, longest);
    const low = panel.zero ? 0 : facts.low;
    const high = facts.high > low ? facts.high : low + 1;
    pen.fillStyle = theme.color("soft", 0.5);
    pen.fillRect(SIDE, 0, wide(), TALL);
    drawTrace(pen, line, { x, y: (one) => 4 + (TALL - 8) * (1 - (one - low) / (high - low)), from: doc.begin, to: doc.end }, longest, color);
    pen.font = chartFont(11.5);
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    pen.fillStyle = theme.color("mut");
    pen.fillText(panel.title, SIDE + 6, TALL - 9);
    // Slow epochs stand out, and what is as usual recedes.
    let last = SIDE;
    let level = "";
    const flush = (to) => {
      pen.fillStyle = level ? theme.color("warn") : theme.color("line", 0.8);
      pen.fillRect(last, TALL + 6, Math.max(0.6, to - last - 0.6), HEAT);
      last = to;
      level = "";
    };
    for (const band of run.bands) {
      const to = x(band[1]);
      level = level || band[3] || "";
      if (to - last >= 4) { flush(to); }
    }
    if (range) {
      const [a, b] = range.map(x);
      pen.fillStyle = theme.color("acc", 0.2);
      pen.fillRect(a, 0, b - a, TALL);
      pen.fillStyle = theme.color("acc");
      pen.fillRect(a - 1, 0, 2, TALL);
      pen.fillRect(b - 1, 0, 2, TALL);
    }
    // Numbers of epochs below.
    pen.fillStyle = theme.color("mut");
    let taken = -Infinity;
    for (const tick of axes.epoch.ticks(run.bands[0][2], lastOf(run.bands[run.bands.length - 1]), wide())) {
      const band = run.bands.find((one) => one[2] <= tick.value && tick.value <= lastOf(one));
      if (!band || x(band[0]) < taken) { continue; }
      pen.textAlign = x(band[0]) < SIDE + 20 ? "left" : "center";
      pen.fillText(tick.text, Math.min(x(band[0]), width - SIDE - 14), TALL + HEAT + 17);
      taken = x(band[0]) + 60;
    }
  }

  node.addEventListener("pointerdown", (event) => {
    if (!doc || event.button !== 0) { return; }
    const at = local(event);
    const inside = range && at > x(range[0]) - 3 && at < x(range[1]) + 3;
    grip = { from: at, window: inside ? [...range] : null };
    node.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  node.addEventListener("pointermove", (event) => {
    if (!grip) { return; }
    const at = local(event);
    if (grip.window) {
      const by = value(at) - value(grip.from);
      range = clampRange(grip.window.map((one) => one + by), [doc.begin, doc.end]);
    } else if (Math.abs(at - grip.from) >= LEAST) { range = [value(Math.min(at, grip.from)), value(Math.max(at, grip.from))]; }
    draw();
  });
  node.addEventListener("pointerup", (event) => {
    if (!grip) { return; }
    const moved = Math.abs(local(event) - grip.from) >= 1;
    grip = null;
    if (moved && range) { go(range); }
  });
  node.addEventListener("dblclick", () => go(null));
  theme.on(draw);
  new ResizeObserver(draw).observe(node);

  return {
    node,
    show(found, seen) {
      doc = found;
      if (!grip) { range = seen; }
      const isLong = doc.runs.length > 0 && doc.runs[0].bands.length >= FROM && doc.panels.length > 0;
      hide(node, !isLong);
      if (isLong) { draw(); }
    },
    hide() { hide(node, true); },
  };
}
