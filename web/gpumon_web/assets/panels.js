// A chart of panels below each other, as in `gutter | plot | axis`, with one time axis, and epochs and events above.
// @ts-check
/** @import { ChartDocument, Panel } from "./types" */
import { attribute, hide, make } from "./dom.js";
import { chartCsv } from "./csv.js";
import { chartFont, drawBoundaries, drawEventLines, drawEvents, drawRibbon, eventsIn, hasTooManyLines, RIBBON } from "./lanes.js";
import { chartGutters, GUTTER, isNoteBelow, shortened, smallPanelNote, valueRange, valuesPerRow, writeGutter } from "./legend.js";
import { canvasPen, hatchArea, SvgPen } from "./pen.js";
import { chartPointer } from "./pointer.js";
import { isPrinting } from "./print.js";
import { axes, axisScale } from "./scale.js";
import { theme } from "./theme.js";
import { drawTrace, heldSpans, lineFacts, longestGap, mergedSpans, unknownSince, unseenIn } from "./trace.js";

const AXIS = 62; // px of the values of an axis, at least
const SMALL_AXIS = 54;
const NARROW = 640; // px of a chart below which its gutters stand above the plots, and panels are small
const PANEL = 92; // px of a plot
const SMALL_PANEL = 66;
const SMALL_HEAD = 27; // px above a small plot, for its value
const NOTE = 19; // px of another row there
const PAD = 9; // px above and below a plot
const LANE_GAP = 3;
const EVENTS = 18;
const FOOT = 26;
const CAPTION = 24; // px below a chart that is a file
const FILE_WIDTH = 900; // px of a file, at least
const APART = 8; // px between two times below a chart, and around the values of an axis
const HATCHED = 12; // px of a gap from which on it is hatched
const VALUES = 11.5; // px of the letters of an axis

// A panel with its position, facts of its lines, and ticks.
function arrangePanel(doc, panel, top, { from, to, width, isSmall, isNow }) {
  const hasNote = smallPanelNote(doc, { panel, isNow }) || isNoteBelow(panel, width);
  const notes = panel.lists ? Math.ceil(panel.lines.length / valuesPerRow(panel)) : hasNote ? 1 : 0;
  const height = isSmall ? SMALL_PANEL : panel.tall || PANEL;
  const plot = top + (isSmall ? SMALL_HEAD + NOTE * notes : PAD);
  const facts = panel.lines.map((line) => lineFacts(line, from, to, longestGap(line, doc.interval)));
  const [low, high, isKnown] = valueRange(panel, facts);
  return {
    panel, facts, isNow, isSmall, head: top, top: plot, height, bottom: plot + height + (isSmall ? 6 : PAD),
    gone: panel.lines.map((line) => (doc.without ? null : unknownSince(line, doc.until || line.x[line.x.length - 1], longestGap(line, doc.interval), Boolean(doc.silent)))),
    ticks: isKnown ? axisScale.ticks(panel.unit, low, high, panel.top) : [], // without a value there is no axis
    y: (value) => plot + height - ((value - low) / (high - low)) * height,
  };
}

// The ribbons of runs in view: runs that follow each other share a lane.
function arrangeRuns(runs, from, to, top) {
  const ends = []; // of the last run of each lane
  const inView = runs.filter((run) => [...run.bands, ...run.phases].some(([begin, end]) => begin < to && end > from));
  return inView.map((run) => {
    const parts = [...run.bands, ...run.phases];
    const begin = Math.min(...parts.map((part) => part[0]));
    const free = ends.findIndex((end) => end <= begin);
    const lane = free < 0 ? ends.length : free;
    ends[lane] = Math.max(...parts.map((part) => part[1]));
    return { run, lane, top: top + lane * (RIBBON + LANE_GAP) };
  });
}

// Positions in px of all parts of a chart that is so wide and shows a range.
/** @param {ChartDocument} doc */
function arrange(doc, [from, to], width, ruler) {
  const isSmall = width < NARROW;
  const left = isSmall ? 12 : GUTTER;
  const isNow = Boolean(doc.goesOn) && to > doc.end - 2 * (doc.interval || 1);
  let top = 6;
  const runs = arrangeRuns(doc.runs, from, to, top);
  const lanes = Math.max(0, ...runs.map((run) => run.lane + 1));
  top += lanes * (RIBBON + LANE_GAP);
  const events = doc.events.length ? top + EVENTS / 2 : null; // the middle of their lane
  if (events !== null) { top += EVENTS; }
  const body = top;
  const panels = doc.panels.map((panel) => {
    const arranged = arrangePanel(doc, panel, top, { from, to, width, isSmall, isNow });
    top = arranged.bottom;
    return arranged;
  });
  ruler.font = chartFont(VALUES);
  const widest = Math.max(0, ...panels.flatMap((one) => one.ticks.map((tick) => ruler.measureText(tick.text).width)));
  const right = Math.max(left + 40, width - Math.max(isSmall ? SMALL_AXIS : AXIS, Math.ceil(widest) + 2 * APART));
  return {
    width, isSmall, from, to, left, right, runs, lanes, events, body, panels, bottom: top, height: top + FOOT,
    x: (value) => left + ((value - from) / (to - from || 1)) * (right - left),
    value: (x) => from + ((x - left) / (right - left)) * (to - from),
  };
}

// Draws a chart as it is arranged; returns whether anything in it is hatched.
/** @param {ChartDocument} doc */
function paint(pen, doc, at, gutterOf = null) {
  let isEach = true; // each band of the ribbons is a single epoch
  for (const { run, top } of at.runs) { isEach = drawRibbon(pen, run, top, at, (opacity) => theme.color(theme.ofUser(run.user), opacity)) && isEach; }
  const events = at.events === null ? [] : eventsIn(doc.events, at);
  drawEvents(pen, events, at.events, at, at.isSmall);
  if (!at.isSmall) { nameLanes(pen, at); }
  let isHatched = false;
  for (const one of at.panels) {
    pen.fillStyle = theme.color("line");
    pen.fillRect(0, Math.round(one.head), at.width, 1);
    for (const { run } of at.runs) { drawBoundaries(pen, run, one.top, one.height, at, isEach); }
    drawAxis(pen, one, at);
    isHatched = drawLines(pen, doc, one, at) || isHatched;
    drawLimits(pen, one, at);
    if (gutterOf) { gutterOf(one); }
  }
  if (!hasTooManyLines(events, at)) { drawEventLines(pen, events, at.body, at.bottom); }
  drawTimes(pen, doc, at);
  return isHatched;
}

function nameLanes(pen, at) {
  pen.font = chartFont(12);
  pen.fillStyle = theme.color("mut");
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  for (let lane = 0; lane < at.lanes; lane += 1) {
    const { run, top } = at.runs.findLast((one) => one.lane === lane);
    pen.fillText(at.lanes > 1 ? shortened(pen, run.name, GUTTER - 28) : "Epoch", 16, top + RIBBON / 2 + 0.5);
  }
  if (at.events !== null) { pen.fillText("Events", 16, at.events + 0.5); }
}

function drawAxis(pen, one, at) {
  pen.font = chartFont(VALUES);
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  for (const tick of one.ticks) {
    const y = Math.round(one.y(tick.value));
    pen.fillStyle = theme.color("line", 0.6);
    pen.fillRect(at.left, y, at.right - at.left, 1);
    pen.fillStyle = theme.color("mut");
    pen.fillText(tick.text, at.right + APART, Math.max(one.top + 4, y));
  }
}

// Calls `draw` with everything clipped to a part of a panel.
function clipped(pen, one, left, right, draw) {
  pen.save();
  pen.beginPath();
  pen.rect(left, one.top - 4, right - left, one.height + 8);
  pen.clip();
  draw();
  pen.restore();
}

// Draws the lines of a panel, over a hatch where nothing was sampled; returns whether there is a hatch.
function drawLines(pen, doc, one, at) {
  const { panel } = one;
  const gaps = mergedSpans(unsampled(doc, one, at)).map(([begin, end]) => [Math.max(at.left, at.x(begin)), Math.min(at.right, at.x(end))])
    .filter(([left, right]) => right - left >= HATCHED);
  clipped(pen, one, at.left, at.right, () => {
    for (const [left, right] of gaps) { hatchArea(pen, { left, right, top: one.top, height: one.height }, 7, theme.color("mut", 0.35)); }
    for (const line of panel.lines) {
      const longest = longestGap(line, doc.interval);
      const scale = { x: at.x, y: one.y, from: at.from, to: at.to, base: panel.zero && !panel.lists ? one.y(0) : undefined };
      if (line.role) { drawTrace(pen, line, scale, longest, (opacity) => theme.color(line.role, opacity)); continue; }
      for (const [begin, end, user] of heldSpans(doc, at)) {
        const span = { ...scale, from: Math.max(begin, at.from), to: Math.min(end, at.to) };
        clipped(pen, one, Math.floor(at.x(begin)), Math.ceil(at.x(end)), () => drawTrace(pen, line, span, longest, (opacity) => theme.color(theme.ofUser(user), opacity)));
      }
    }
  });
  return gaps.length > 0;
}

// The times in view in which nothing is known of a panel, as [from, to].
function unsampled(doc, one, at) {
  const [first] = one.panel.lines;
  if (!first || doc.without) { return []; }
  const gaps = unseenIn(doc, one.panel, at, longestGap(first, doc.interval));
  if (one.gone[0]) { gaps.push([Math.max(one.gone[0].from, first.joined && doc.heard ? doc.heard : 0), doc.until || first.x[first.x.length - 1]]); }
  if (doc.known > at.from) { gaps.push([at.from, doc.known]); }
  return gaps;
}

function drawLimits(pen, one, at) {
  pen.font = chartFont(11);
  pen.textAlign = "left";
  pen.textBaseline = "alphabetic";
  for (const limit of one.panel.limits) {
    const y = Math.round(one.y(limit.at)) + 0.5;
    if (y < one.top - 4 || y > one.top + one.height) { continue; }
    pen.strokeStyle = theme.color("warn", 0.9);
    pen.lineWidth = 1;
    pen.setLineDash([5, 4]);
    pen.beginPath();
    pen.moveTo(at.left, y);
    pen.lineTo(at.right, y);
    pen.stroke();
    pen.setLineDash([]);
    const isBelow = y - one.top < (at.isSmall ? 10 : 6);
    pen.fillStyle = theme.color("card", 0.8);
    pen.fillRect(at.left + 3, isBelow ? y + 3 : y - 14, pen.measureText(limit.text).width + 4, 12);
    pen.fillStyle = theme.color("warn");
    pen.fillText(limit.text, at.left + 5, isBelow ? y + 12 : y - 4);
  }
}

// Below all panels: round times, the time of the newest values, and the day at the left.
function drawTimes(pen, doc, at) {
  const axis = axes[doc.axis];
  const y = at.bottom + FOOT / 2;
  pen.fillStyle = theme.color("line");
  pen.fillRect(0, Math.round(at.bottom), at.width, 1);
  pen.font = chartFont(11.5);
  pen.textBaseline = "middle";
  pen.fillStyle = theme.color("mut");
  const isNow = doc.axis === "time" && doc.goesOn && Math.abs(at.to - doc.end) < 2 * (doc.interval || 1);
  const newest = isNow ? axisScale.instant(at.to).split(" ").pop() : "";
  const end = (newest ? at.right - pen.measureText(newest).width : at.width) - APART;
  let taken = -Infinity;
  pen.textAlign = "center";
  for (const tick of axis.ticks(at.from, at.to, at.right - at.left, at.isSmall ? 84 : 0)) {
    const half = pen.measureText(tick.text).width / 2;
    const middle = Math.max(at.x(tick.value), half + 2);
    if (middle + half > end || middle - half < taken) { continue; }
    taken = middle + half + APART;
    pen.fillText(tick.text, middle, y);
  }
  pen.textAlign = "right";
  if (newest) { pen.fillText(newest, at.right, y); }
  pen.textAlign = "left";
  if (!at.isSmall) { pen.fillText(axis.name(at.from), 16, y); }
}

// A chart in an empty element. `zoomed(range)` is called when the viewer zooms, with null for all of it.
export function chartPanels(place, zoomed) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  const ruler = document.createElement("canvas").getContext("2d");
  const gutters = chartGutters();
  const pointer = chartPointer(place, { view: () => view, doc: () => doc, zoomed });
  const hatchKey = make("p", { class: "key hatchkey", hidden: true }, make("i", { class: "k-unseen", "aria-hidden": "true" }), "not seen");
  place.replaceChildren(canvas, gutters.node, ...pointer.nodes);
  place.after(hatchKey);
  let doc = null;
  let range = null; // the visible part of the axis; null: all
  let view = null; // the arrangement that was drawn last
  let frame = 0;

  const whole = () => (doc ? [doc.begin, doc.end] : null);

  function draw() {
    cancelAnimationFrame(frame);
    frame = 0;
    if (!doc || !place.isConnected || !place.clientWidth) { return; }
    view = arrange(doc, range || whole(), place.clientWidth, ruler);
    place.style.height = `${view.height}px`;
    const isHatched = paint(canvasPen(canvas, view.width, view.height, isPrinting() ? 1 : undefined), doc, view);
    hide(hatchKey, !isHatched);
    gutters.show(doc, view, !range);
    pointer.update();
    place.gpumonView = { range: [view.from, view.to], plot: [view.left, view.right], doc };
    attribute(place, "data-drawn", String(Number(place.dataset.drawn || 0) + 1));
  }

  function drawSoon() {
    if (!frame) { frame = requestAnimationFrame(draw); }
  }

  theme.on(draw);
  new ResizeObserver(() => { if (view && place.clientWidth && view.width !== place.clientWidth) { drawSoon(); } }).observe(place);

  // Draws the chart as a file with a caption below it. `penOf(width, height)` returns what it is drawn with.
  function drawFile(caption, penOf) {
    const at = arrange(doc, range || whole(), Math.max(FILE_WIDTH, place.clientWidth), ruler);
    const pen = penOf(at.width, at.height + CAPTION);
    pen.fillStyle = theme.color("card");
    pen.fillRect(0, 0, at.width, at.height + CAPTION);
    paint(pen, doc, at, (one) => writeGutter(pen, doc, one, !range));
    Object.assign(pen, { fillStyle: theme.color("mut"), font: "12px sans-serif", textAlign: "left", textBaseline: "middle" });
    pen.fillText(caption, 8, at.height + CAPTION / 2);
    return pen;
  }

  return {
    // Shows a range of a document, at once if `isUrgent`, or else in the next frame.
    show(given, seen, isUrgent) {
      doc = given;
      range = seen;
      if (isUrgent) { draw(); } else { drawSoon(); }
    },
    get doc() { return doc; },
    get range() { return range || whole(); },
    clear() { doc = null; view = null; pointer.hide(); },
    svg: (caption) => drawFile(caption, (width, height) => new SvgPen(width, height)).text,
    png(caption, done) {
      const sheet = document.createElement("canvas");
      drawFile(caption, (width, height) => canvasPen(sheet, width, height, 2));
      sheet.toBlob(done, "image/png");
    },
    csv: () => chartCsv(doc, range || whole()),
  };
}
