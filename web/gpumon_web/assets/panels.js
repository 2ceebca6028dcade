// A chart of panels below each other: gutter | plot | axis, one time for all of them, epochs and events above.
//
// A document has `axis`, `begin`, `end`, `interval`, `panels`, `runs`, `events` and `held`. A panel: `key`, `title`, `unit`, `zero`
// (its base is zero: it is filled), `top`, `limits` [{at, text}], and `lines`; a line: `x`, `mean`, `low` and `high`, `step`, a `role`
// of the theme or none (the color of who holds the GPU), a `label`, a short `mark` beside its value where it is one of a list, and a `look` (dots, thin). All values are in base units.
// One that `spans` is of something that was there from begin to end, seen or not; `unseen` are times [from, to] of it in which nothing was sampled. One that `goesOn` reaches to now, which is `until`; `silent` is the state of a GPU that has no values of now, {title, age}, and `heard` when anything was last seen, where lines may end earlier; `known` is when its first sample is of.
// @ts-check
import { attribute, make } from "./dom.js";
import { inRow, isNoteBelow, smallPanelNote, unseenKey, valueRange } from "./gutter.js";
import { chartFont, drawBehind, drawRibbon, eventLane, eventLines, eventsIn, isFence, RIBBON } from "./lanes.js";
import { chartGutters, GUTTER, shortened, writeGutter } from "./legend.js";
import { canvasPen, SvgPen } from "./pen.js";
import { chartCsv } from "./csv.js";
import { chartPointer } from "./pointer.js";
import { isPrinting } from "./print.js";
import { axes, axisScale } from "./scale.js";
import { theme } from "./theme.js";
import { drawHatch, drawTrace, heldSpans, lineFacts, longestGap, mergedSpans, unknownSince, unseenIn } from "./trace.js";

const AXIS = 62;
const SMALL_AXIS = 54;
const NARROW = 640; // px of a chart from which on its gutters stand beside the plots
const TALL = 92;
const SMALL = 66;
const HEAD = 27; // px above a plot on a phone
const LISTED = 19; // px of a row of values there
const PAD = 9; // px within a panel
const VALUES = 11.5; // px of the letters beside the panels
const LANE = 18;
const FOOT = 26;
const CAPTION = 24; // px below a chart that is a file
const MOVES = 0.5; // px that time moves on until lines are painted again
const BUSY = 8; // a chart takes at most one eighth of the time
const APART = 8; // px between two times below a chart, and around the values of an axis

// `place`: an empty element; `zoomed(range or null)` is called on a zoom, with null for the whole chart.
export function chartPanels(place, zoomed) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  const gutters = chartGutters();
  const over = chartPointer(place, { view: () => view, doc: () => doc, zoomed });
  place.replaceChildren(canvas, gutters.node, ...over.nodes);
  const tellsUnseen = unseenKey(place);
  let isHatched = false;
  let doc = null;
  let range = null;
  let view = null; // what was drawn last: {from, to, left, right, x, value, panels, lanes}
  let painted = null; // {from, to, looks} of what stands on the canvas
  let waiting = 0;
  let rest = 0;

  const edges = () => (doc ? [doc.begin, doc.end] : null);

  function color(role) {
    return (opacity) => theme.color(role, opacity);
  }

  // Pixels of the widest value beside the panels.
  function widest(panels) {
    const ruler = canvas.getContext("2d");
    ruler.font = chartFont(VALUES);
    return Math.ceil(Math.max(0, ...panels.flatMap((one) => one.ticks.map((tick) => ruler.measureText(tick.text).width))));
  }

  const reachesNow = (to) => Boolean(doc.goesOn) && to > doc.end - 2 * (doc.interval || 1);

  function unknown(line) {
    const until = doc.until || line.x[line.x.length - 1];
    return doc.without ? null : unknownSince(line, until, longestGap(line, doc.interval), Boolean(doc.silent));
  }

  // Where everything stands, for a width.
  function arranged(width) {
    const isSmall = width < NARROW;
    const [from, to] = range || edges();
    const left = isSmall ? 12 : GUTTER;
    const isNow = reachesNow(to);
    let top = 6;
    // Runs behind each other share a ribbon; two at the same time have one each.
    const ends = [];
    const inView = (run) => [...run.bands, ...run.phases].some(([begin, end]) => begin < to && end > from);
    const runs = doc.runs.filter(inView).map((run) => {
      const parts = [...run.bands, ...run.phases];
      const begin = Math.min(...parts.map((one) => one[0]));
      let lane = ends.findIndex((end) => end <= begin);
      if (lane < 0) { lane = ends.length; }
      ends[lane] = Math.max(...parts.map((one) => one[1]));
      return { run, lane, top: top + lane * (RIBBON + 3) };
    });
    const lanes = ends.length;
    top += lanes * (RIBBON + 3);
    const hasEvents = doc.events.length > 0;
    const events = hasEvents ? { top, middle: top + LANE / 2 } : null;
    if (hasEvents) { top += LANE; }
    const body = top;
    const panels = doc.panels.map((panel) => {
      const tall = (isSmall ? SMALL : panel.tall || TALL);
      const extra = panel.lists ? Math.ceil(panel.lines.length / inRow(panel)) : smallPanelNote(doc, { panel, isNow }) || isNoteBelow(panel, width) ? 1 : 0;
      const head = isSmall ? HEAD + LISTED * extra : PAD;
      const facts = panel.lines.map((line) => lineFacts(line, from, to, longestGap(line, doc.interval)));
      const [low, high, isKnown] = valueRange(panel, facts);
      const gone = panel.lines.map((line) => unknown(line));
      const plot = top + head;
      top += head + tall + (isSmall ? 6 : PAD);
      const ticks = isKnown ? axisScale.ticks(panel.unit, low, high, panel.top) : []; // an axis of nothing would be made up
      return {
        panel, facts, gone, isNow, isSmall, low, high, ticks, head: plot - head, top: plot, height: tall, bottom: top,
        y: (value) => plot + tall - ((value - low) / (high - low)) * tall,
      };
    });
    const right = Math.max(left + 40, width - Math.max(isSmall ? SMALL_AXIS : AXIS, widest(panels) + 2 * APART));
    const x = (value) => left + ((value - from) / (to - from || 1)) * (right - left);
    return { width, isSmall, from, to, left, right, x, value: (at) => from + ((at - left) / (right - left)) * (to - from), runs, lanes, events, body, panels, bottom: top, height: top + FOOT };
  }

  function paint(pen, at, isFile) {
    const mut = theme.color("mut");
    const rule = theme.color("line");
    const tint = (run) => color(theme.ofUser(run.user));
    let isEach = true;
    for (const { run, top } of at.runs) { isEach = drawRibbon(pen, run, top, at, tint(run)) && isEach; }
    const found = at.events ? eventsIn(doc.events, at) : [];
    if (at.events) { eventLane(pen, found, at.events.middle, at, at.isSmall); }
    if (!at.isSmall) {
      pen.font = chartFont(12);
      pen.fillStyle = mut;
      pen.textAlign = "left";
      pen.textBaseline = "middle";
      for (let lane = 0; lane < at.lanes; lane += 1) {
        const { run, top } = at.runs.findLast((one) => one.lane === lane);
        pen.fillText(at.lanes > 1 ? shortened(pen, run.name, GUTTER - 28) : "Epoch", 16, top + RIBBON / 2 + 0.5);
      }
      if (at.events) { pen.fillText("Events", 16, at.events.middle + 0.5); }
    }
    for (const one of at.panels) {
      pen.fillStyle = rule;
      pen.fillRect(0, Math.round(one.head), at.width, 1);
      for (const { run } of at.runs) { drawBehind(pen, run, one.top, one.height, at, isEach); }
      axis(pen, one, at, mut);
      lines(pen, one, at);
      limits(pen, one, at);
      if (isFile) { writeGutter(pen, doc, one, at, !range); }
    }
    if (!isFence(found, at)) { eventLines(pen, found, at.body, at.bottom); }
    feet(pen, at, mut);
  }

  function axis(pen, one, at, mut) {
    pen.font = chartFont(VALUES);
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    for (const tick of one.ticks) {
      const y = Math.round(one.y(tick.value));
      pen.fillStyle = theme.color("line", 0.6);
      pen.fillRect(at.left, y, at.right - at.left, 1);
      pen.fillStyle = mut;
      pen.fillText(tick.text, at.right + APART, Math.max(one.top + 4, y));
    }
  }

  function lines(pen, one, at) {
    const { panel } = one;
    pen.save();
    pen.beginPath();
    pen.rect(at.left, one.top - 4, at.right - at.left, one.height + 8);
    pen.clip();
    const first = panel.lines[0];
    if (first && !doc.without) {
      const longest = longestGap(first, doc.interval);
      const gaps = unseenIn(doc, panel, at, longest);
      // What is not known up to now is no empty place.
      if (one.gone[0]) { gaps.push([Math.max(one.gone[0].from, first.joined && doc.heard ? doc.heard : 0), doc.until || first.x[first.x.length - 1]]); }
      if (doc.known > at.from) { gaps.push([at.from, doc.known]); }
      for (const [begin, end] of mergedSpans(gaps)) { isHatched = drawHatch(pen, Math.max(at.left, at.x(begin)), Math.min(at.right, at.x(end)), one.top, one.height) || isHatched; }
    }
    for (const line of panel.lines) {
      const longest = longestGap(line, doc.interval);
      const scale = { x: at.x, y: one.y, from: at.from, to: at.to, base: panel.zero && !panel.lists ? one.y(0) : undefined };
      if (line.role) { drawTrace(pen, line, scale, longest, color(line.role)); continue; }
      for (const [begin, end, user] of heldSpans(doc, at)) {
        pen.save();
        pen.beginPath();
        pen.rect(Math.floor(at.x(begin)), one.top - 4, Math.ceil(at.x(end)) - Math.floor(at.x(begin)), one.height + 8);
        pen.clip();
        drawTrace(pen, line, { ...scale, from: Math.max(begin, at.from), to: Math.min(end, at.to) }, longest, color(theme.ofUser(user)));
        pen.restore();
      }
    }
    pen.restore();
  }

  function limits(pen, one, at) {
    pen.font = chartFont(11);
    pen.textAlign = "left";
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
      pen.textBaseline = "alphabetic";
      const wide = pen.measureText(limit.text).width;
      const below = y - one.top < (at.isSmall ? 10 : 6);
      pen.fillStyle = theme.color("card", 0.8);
      pen.fillRect(at.left + 3, below ? y + 3 : y - 14, wide + 4, 12);
      pen.fillStyle = theme.color("warn");
      pen.fillText(limit.text, at.left + 5, below ? y + 12 : y - 4);
    }
  }

  // Below all panels: round times, the last one that is known, and the day at the left.
  function feet(pen, at, mut) {
    const kind = axes[doc.axis];
    const y = at.bottom + FOOT / 2;
    pen.fillStyle = theme.color("line");
    pen.fillRect(0, Math.round(at.bottom), at.width, 1);
    pen.font = chartFont(11.5);
    pen.textBaseline = "middle";
    pen.fillStyle = mut;
    const ticks = kind.ticks(at.from, at.to, at.right - at.left, at.isSmall ? 84 : 0);
    const isNow = doc.axis === "time" && doc.goesOn && Math.abs(at.to - doc.end) < 2 * (doc.interval || 1);
    const last = isNow ? axisScale.instant(at.to).split(" ").pop() : "";
    pen.textAlign = "center";
    const end = last ? at.right - pen.measureText(last).width - APART : at.width - APART;
    let taken = -Infinity;
    for (const tick of ticks) {
      const x = at.x(tick.value);
      const half = pen.measureText(tick.text).width / 2;
      const middle = Math.max(x, half + 2);
      if (middle + half > end || middle - half < taken) { continue; }
      taken = middle + half + APART;
      pen.fillText(tick.text, middle, y);
    }
    pen.textAlign = "right";
    if (last) { pen.fillText(last, at.right, y); }
    pen.textAlign = "left";
    if (!at.isSmall) { pen.fillText(kind.name(at.from), 16, y); }
  }

  // Everything that a picture depends on but for its time and its points.
  const looksOf = (at) => JSON.stringify([
    at.width, at.left, at.right, at.bottom, at.lanes, window.devicePixelRatio, Boolean(isPrinting()), doc.silent && doc.silent.title, doc.held.length, doc.events.length,
    at.runs.map(({ run }) => [run.bands.length, run.phases.length]), at.panels.map((one) => [one.panel.key, one.low, one.high, one.gone.map(Boolean)]),
  ]);

  // Whether lines stand elsewhere than they were painted: of a month, a second moves nothing that anybody sees.
  function isMoved(at, looks) {
    const pixels = (at.right - at.left) / (at.to - at.from || 1);
    return !painted || painted.doc !== doc || painted.looks !== looks || Math.max(Math.abs(at.from - painted.from), Math.abs(at.to - painted.to)) * pixels >= MOVES;
  }

  function drawAgain() {
    painted = null;
    draw();
  }

  function draw() {
    cancelAnimationFrame(waiting);
    waiting = 0;
    if (!doc || !place.isConnected || !place.clientWidth) { return; }
    const began = performance.now();
    const at = arranged(place.clientWidth);
    const looks = looksOf(at);
    if (isMoved(at, looks)) {
      place.style.height = `${at.height}px`;
      const pen = canvasPen(canvas, at.width, at.height, isPrinting() ? 1 : undefined);
      isHatched = false;
      paint(pen, at, false);
      tellsUnseen(isHatched);
      painted = { doc, looks, from: at.from, to: at.to };
      attribute(place, "data-painted", String(Number(place.dataset.painted || 0) + 1));
    } else {
      const pen = canvas.getContext("2d");
      pen.clearRect(0, at.bottom, at.width, FOOT);
      feet(pen, at, theme.color("mut"));
    }
    view = at;
    gutters.show(doc, at, !range);
    over.moved();
    rest = began + BUSY * (performance.now() - began);
    place.gpumonView = { range: [at.from, at.to], plot: [at.left, at.right], doc };
    attribute(place, "data-drawn", String(Number(place.dataset.drawn || 0) + 1));
  }

  function soon() {
    if (waiting) { return; }
    const wait = Math.max(0, rest - performance.now());
    waiting = -1;
    setTimeout(() => { waiting = requestAnimationFrame(draw); }, wait);
  }

  theme.on(drawAgain);
  new ResizeObserver(() => { if (view && place.clientWidth && view.width !== place.clientWidth) { soon(); } }).observe(place);

  function captioned(pen, at, caption) {
    pen.fillStyle = theme.color("card");
    pen.fillRect(0, 0, at.width, at.height + CAPTION);
    paint(pen, at, true);
    Object.assign(pen, { fillStyle: theme.color("mut"), font: "12px sans-serif", textAlign: "left", textBaseline: "middle" });
    pen.fillText(caption, 8, at.height + CAPTION / 2);
  }

  return {
    // A document, and what of it is seen; drawn at once when `now`, else when there is time.
    show(found, seen, now) {
      doc = found;
      range = seen;
      if (now) { drawAgain(); } else { soon(); }
    },
    get doc() { return doc; },
    get whole() { return edges(); },
    get range() { return range || edges(); },
    clear() { doc = null; view = null; painted = null; over.hide(); },
    // The chart as it is shown with a line below it that says of what it is: text of an SVG file, or a PNG twice as fine.
    svg(caption) {
      const at = arranged(Math.max(900, place.clientWidth));
      const pen = new SvgPen(at.width, at.height + CAPTION);
      captioned(pen, at, caption);
      return pen.text;
    },
    png(caption, done) {
      const at = arranged(Math.max(900, place.clientWidth));
      const sheet = document.createElement("canvas");
      captioned(canvasPen(sheet, at.width, at.height + CAPTION, 2), at, caption);
      sheet.toBlob(done, "image/png");
    },
    csv: () => chartCsv(doc, range || edges()),
  };
}
