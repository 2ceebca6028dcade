// The whole of a long run above its chart: one line, its slow epochs, and a range to draw and to move.
// @ts-check
import { hide, make } from "./dom.js";
import { chartFont, lastOf } from "./lanes.js";
import { canvasPen } from "./pen.js";
import { axes } from "./scale.js";
import { theme } from "./theme.js";
import { clampRange } from "./tools.js";
import { drawTrace, lineFacts, longestGap } from "./trace.js";

const FROM = 60; // epochs from which on a run is long
const TALL = 56; // px of the line
const EPOCHS = 12; // px of the row of epochs
const HEIGHT = TALL + EPOCHS + 26; // with their numbers
const SIDE = 16; // px
const LEAST = 6; // px of a range, at least
const GRIP = 3; // px beside a range that still move it
const APART = 60; // px between two numbers

// `go(range)` is called with a range that the viewer draws, and with null on a double click.
export function overview(go) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  const node = make("div", { class: "overview", hidden: true }, canvas);
  let doc = null;
  let range = null;
  let drag = null; // {from: px, range: the range that is moved, or null while one is drawn}

  const width = () => node.clientWidth - 2 * SIDE;
  const x = (value) => SIDE + ((value - doc.begin) / (doc.end - doc.begin || 1)) * width();
  const value = (at) => doc.begin + ((Math.max(SIDE, Math.min(SIDE + width(), at)) - SIDE) / width()) * (doc.end - doc.begin);
  const local = (event) => event.clientX - node.getBoundingClientRect().left;

  function draw() {
    if (!doc || !node.clientWidth) { return; }
    const pen = canvasPen(canvas, node.clientWidth, HEIGHT);
    const [run] = doc.runs;
    drawLine(pen, doc.panels[0], theme.ofUser(run.user));
    drawEpochs(pen, run.bands);
    if (range) {
      const [a, b] = range.map(x);
      pen.fillStyle = theme.color("acc", 0.2);
      pen.fillRect(a, 0, b - a, TALL);
      pen.fillStyle = theme.color("acc");
      pen.fillRect(a - 1, 0, 2, TALL);
      pen.fillRect(b - 1, 0, 2, TALL);
    }
    writeNumbers(pen, run.bands);
  }

  function drawLine(pen, panel, role) {
    const [line] = panel.lines;
    const longest = longestGap(line, doc.interval);
    const facts = lineFacts(line, doc.begin, doc.end, longest);
    const low = panel.zero ? 0 : facts.low;
    const high = facts.high > low ? facts.high : low + 1;
    pen.fillStyle = theme.color("soft", 0.5);
    pen.fillRect(SIDE, 0, width(), TALL);
    const y = (one) => 4 + (TALL - 8) * (1 - (one - low) / (high - low));
    drawTrace(pen, line, { x, y, from: doc.begin, to: doc.end }, longest, (opacity) => theme.color(role, opacity));
    pen.font = chartFont(11.5);
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    pen.fillStyle = theme.color("mut");
    pen.fillText(panel.title, SIDE + 6, TALL - 9);
  }

  // Epochs as blocks of at least 4 px; a block with a slow epoch stands out.
  function drawEpochs(pen, bands) {
    let left = SIDE;
    let level = "";
    for (const band of bands) {
      const right = x(band[1]);
      level = level || band[3] || "";
      if (right - left < 4) { continue; }
      pen.fillStyle = level ? theme.color("warn") : theme.color("line", 0.8);
      pen.fillRect(left, TALL + 6, right - left - 0.6, EPOCHS);
      left = right;
      level = "";
    }
  }

  function writeNumbers(pen, bands) {
    pen.fillStyle = theme.color("mut");
    let taken = -Infinity;
    for (const tick of axes.epoch.ticks(bands[0][2], lastOf(bands[bands.length - 1]), width())) {
      const band = bands.find((one) => one[2] <= tick.value && tick.value <= lastOf(one));
      if (!band || x(band[0]) < taken) { continue; }
      pen.textAlign = x(band[0]) < SIDE + 20 ? "left" : "center";
      pen.fillText(tick.text, Math.min(x(band[0]), node.clientWidth - SIDE - 14), TALL + EPOCHS + 17);
      taken = x(band[0]) + APART;
    }
  }

  node.addEventListener("pointerdown", (event) => {
    if (!doc || event.button !== 0) { return; }
    const at = local(event);
    const isInside = range && at > x(range[0]) - GRIP && at < x(range[1]) + GRIP;
    drag = { from: at, range: isInside ? [...range] : null };
    node.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  node.addEventListener("pointermove", (event) => {
    if (!drag) { return; }
    const at = local(event);
    if (drag.range) {
      const by = value(at) - value(drag.from);
      range = clampRange(drag.range.map((end) => end + by), [doc.begin, doc.end]);
    } else if (Math.abs(at - drag.from) >= LEAST) { range = [value(Math.min(at, drag.from)), value(Math.max(at, drag.from))]; }
    draw();
  });
  node.addEventListener("pointerup", (event) => {
    if (!drag) { return; }
    const isMoved = Math.abs(local(event) - drag.from) >= 1;
    drag = null;
    if (isMoved && range) { go(range); }
  });
  node.addEventListener("dblclick", () => go(null));
  theme.on(draw);
  new ResizeObserver(draw).observe(node);

  return {
    node,
    // Shows a document and its range, if the run is long.
    show(given, seen) {
      doc = given;
      if (!drag) { range = seen; }
      const isLong = doc.runs.length > 0 && doc.runs[0].bands.length >= FROM && doc.panels.length > 0;
      hide(node, !isLong);
      if (isLong) { draw(); }
    },
  };
}
