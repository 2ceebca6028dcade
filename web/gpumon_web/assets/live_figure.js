// The live chart of a page: requested for the subject and the arguments of the address, extended by the page's lines at each
// tick, and kept under a zoom. The layout names its address, the value with its subject, and the windows that have buttons.
// @ts-check
/** @import { Line } from "./types" */
import { rangeArguments, rangeOf, setArguments } from "./address.js";
import { attribute, elements, hide, make, put } from "./dom.js";
import { feed } from "./feed.js";
import * as format from "./format.js";
import { chartPanels } from "./panels.js";
import { position } from "./position.js";
import { latestAnswer } from "./request.js";
import { redrawPage } from "./router.js";
import { chartHead, clampRange, panelChoice, SETTLES, withMargin } from "./tools.js";
import { MISSED } from "./trace.js";

const ROOM = 240; // points that are appended until the chart is requested again
const FUTURE = 600; // s beyond now that are requested, so that a zoom up to now keeps growing
const SLACK = 600; // s by which a link may exceed the samples without a note
const UNREAD = 10000; // ms after which a chart is requested again if its history could not be read
const FEWEST = 200; // points
const MOST = 1200;

export function liveFigure(place) {
  const { figure: address, subject: subjectName, outline: outlineName, state: stateName, panels: usualPanels } = place.dataset;
  const ask = latestAnswer();
  const card = place.closest(".card");
  const windows = card.querySelector("[data-usual]");
  const buttons = elements(windows, "[data-value]");
  const problem = make("p", { class: "empty", hidden: true });
  const chart = chartPanels(place, zoom);
  const choice = panelChoice("gpu", () => usualPanels.split(" "), () => load(true));
  const { note, back } = chartHead(card, {
    chart, go: zoom, choice, figure, name: () => [document.title, place.dataset.name].filter(Boolean).join(" "), back: "Back to live",
  });
  place.before(problem);
  let view = { window: windows.dataset.usual, range: null };
  let subject = "";
  let reachesNow = true;
  let resets = 0; // as feed.resets when the chart was requested
  let begin = 0; // of the chart that came last
  let known = null; // [from, to] of all samples
  let requested = ""; // what the chart that is shown or under way was requested for
  let isPending = false;
  let appended = 0; // points since the chart came
  let outline = ""; // a value that changes with each epoch
  let restUntil = 0; // when another epoch may lead to a request, by performance.now()
  let retryAt = Infinity; // when to request again a chart whose history could not be read
  let timer = 0;
  let isFirst = true;
  let beyond = ""; // a note that the link exceeds the samples

  for (const button of buttons) {
    button.addEventListener("click", () => {
      const isOther = Boolean(view.range) || view.window !== button.dataset.value;
      view.window = button.dataset.value;
      zoom(null, isOther);
    });
  }

  function open(params) {
    const before = view.window;
    const given = params.get("window");
    view = { window: buttons.some((button) => button.dataset.value === given) ? given : windows.dataset.usual, range: rangeOf(params) };
    choice.open(params);
    beyond = "";
    if (before !== view.window) { clear(); }
    if (resets !== feed.resets) { clear(); hide(place, true); } // its values may be from a later position of the recording
    markWindow();
  }

  function clear() { requested = ""; chart.clear(); isFirst = true; }

  // The address of the visible part as a figure, in full resolution.
  function figure() {
    const [from, to] = seen();
    return `${address}${encodeURIComponent(subject)}&as=figure&panels=${encodeURIComponent(choice.shown().join(","))}&from=${from}&to=${to}${position.exact()}`;
  }

  // Shows a range, or with null the window up to now. `isStep`: the browser's back button undoes it.
  function zoom(range, isStep = false) {
    view.range = range && known ? clampRange(range, [known[0], Math.max(known[1], feed.now)]) : range;
    beyond = "";
    setArguments({ window: view.window, ...rangeArguments(view.range) }, isStep);
    redrawPage();
    markWindow();
    if (chart.doc) { chart.show(chart.doc, seen(), true); }
    clearTimeout(timer);
    timer = setTimeout(() => load(true), range ? SETTLES : 0);
  }

  function markWindow() {
    for (const button of buttons) {
      attribute(button, "aria-pressed", String(!view.range && button.dataset.value === view.window));
    }
    hide(back, !view.range);
    put(back, feed.recorded ? "Back to the position" : "Back to live");
  }

  // The range that is seen: the zoom, or else the window up to now.
  function seen() {
    if (view.range) { return view.range; }
    const now = feed.clock();
    if (view.window === "all") { return [Math.min(begin, now - 10), now]; }
    const length = Number(view.window);
    return [Math.max(now - length, Math.min(begin, now - Math.min(length, 30))), now];
  }

  // Requests the chart if it `must` be, if it is of something else, or if an epoch began.
  function load(must) {
    const { values } = feed.view;
    const name = values.get(subjectName) || "";
    if (!name) { return; }
    if (name !== subject) { subject = name; clear(); }
    const panels = choice.isKnown ? choice.shown() : choice.wanted || usualPanels.split(" ");
    const what = JSON.stringify([feed.resets, subject, view]);
    const isSameOutline = values.get(outlineName) === outline || performance.now() < restUntil;
    if (!must && requested === `${what} ${panels}` && isSameOutline && performance.now() < retryAt) {
      if (chart.doc && !feed.isFresh()) { redraw(); }
      return;
    }
    requested = `${what} ${panels}`;
    outline = values.get(outlineName);
    if (resets !== feed.resets) { resets = feed.resets; reachesNow = false; } // new lines do not continue the old chart
    const query = `&points=${points()}&panels=${encodeURIComponent(panels.join(","))}${rangeQuery()}${position.exact()}`;
    if (!chart.doc) { hide(problem, false); put(problem, "Loading the chart …"); hide(place, true); }
    isPending = true;
    ask(`${address}${encodeURIComponent(subject)}${query}`, (answer, took) => {
      isPending = false;
      retryAt = !answer || answer.problem ? performance.now() + UNREAD : Infinity;
      restUntil = performance.now() + Math.max(2000, 20000 * took);
      if (!answer) { requested = ""; return; }
      const doc = takeOver(answer);
      // If the GPU lacks some of the panels, the others are what would be requested now.
      const keys = String(doc.panels.map((panel) => panel.key));
      if (keys === String(choice.shown())) { requested = `${what} ${keys}`; }
      chart.show(timed(doc), seen(), isFirst || must);
      isFirst = false;
    });
  }

  // About one point for each pixel.
  const points = () => Math.max(FEWEST, Math.min(MOST, Math.round((place.clientWidth || 900) * (view.range ? 3 / 2 : 1))));

  function rangeQuery() {
    if (!view.range) { return view.window === "all" ? "" : `&window=${view.window}`; }
    const [from, until] = withMargin(view.range);
    const to = Math.min(until, feed.now + FUTURE);
    return from < to ? `&from=${from}&to=${to}` : "&window=10"; // every answer says which samples there are
  }

  // Takes over an answer; returns its chart, with the points that came meanwhile.
  function takeOver(answer) {
    known = format.known(answer.known.begin) ? [answer.known.begin, answer.known.end] : null;
    begin = answer.begin;
    const outside = clampLink();
    const doc = chartDocument(answer.chart);
    const lines = doc.panels.flatMap((panel) => panel.lines);
    const isDrawable = !outside && lines.some((line) => (silence() ? line.x.length > 0 : line.mean.some((value) => value !== null)));
    hide(place, !isDrawable);
    const text = unreadNote(answer.problem) || outside || beyond || (isDrawable ? keptNote(answer.known) : "No samples in this period.");
    hide(problem, !text);
    put(problem, text);
    put(note, isDrawable ? [pointNote(doc), sinceNote(answer.known)].filter(Boolean).join("; ") : "");
    choice.offer(doc.all);
    reachesNow = !view.range || answer.end >= feed.now - 2 * feed.interval;
    appended = 0;
    Object.assign(doc, { goesOn: reachesNow, known: known ? known[0] : 0, newest: doc.end });
    if (reachesNow) { catchUp(doc); }
    return doc;
  }

  // Sets the times behind the newest sample up to now, which are unknown and not empty.
  function timed(doc) {
    doc.until = reachesNow ? feed.clock() : 0;
    doc.silent = reachesNow ? silence() : null;
    if (reachesNow && format.known(feed.now)) { doc.end = Math.max(doc.end, feed.now); }
    return doc;
  }

  // Why the GPU has no current values, as {title, age}; null if it has. The end of a recording is not silent.
  function silence() {
    const isOld = !feed.isFresh() && feed.state !== "ended";
    const state = feed.value(stateName);
    if (state && state.silent && (state.lasts || !isOld)) { return state.silent; }
    return isOld ? { title: feed.oldState(), age: feed.silence() } : null;
  }

  function redraw() { chart.show(timed(chart.doc), seen()); }

  // Limits the range of a link to the samples that there are; returns a text if there are none in it.
  function clampLink() {
    if (!view.range || !known) { return ""; }
    const [from, to] = view.range;
    const end = Math.max(known[1], feed.now);
    const span = `from ${format.moment(known[0])} to ${format.moment(end)}`;
    if (to <= known[0] || from >= end) { return `There are no samples in the time of this link. Samples exist ${span}.`; }
    if (from < known[0] - SLACK || to > end + FUTURE) {
      beyond = `The time of this link is only partly sampled. Samples exist ${span}.`;
      view.range = [Math.max(from, known[0]), Math.min(to, end)];
    }
    return "";
  }

  const unreadNote = (reason) => (reason ? `The history cannot be read now: ${reason}. What is shown was read before, or is new.` : "");

  const keptNote = (all) => (view.window === "all" && !view.range && all.cut ? `Only the last ${format.span(all.end - all.begin)} are kept.` : "");

  // The begin of the samples, if they do not fill the window.
  function sinceNote(all) {
    const isShort = !view.range && view.window !== "all" && format.known(all.begin) && all.begin > feed.now - Number(view.window) + feed.interval;
    return isShort ? `kept since ${format.moment(all.begin)}` : "";
  }

  // Appends new points; if they are many, a shorter chart is requested that has them.
  function grow({ t: times, lines, every }) {
    const { doc } = chart;
    if (!doc || !times.length || !reachesNow) { return; }
    if (appended + times.length <= ROOM) { append(doc, times, lines, every); redraw(); }
    else if (!isPending) { requested = ""; load(false); }
  }

  // Appends the points that came while the chart was under way.
  function catchUp(doc) {
    const { t: times, lines, every } = feed.view.series;
    const next = times.findIndex((time) => time > doc.end + 1e-3);
    if (next < 0) { return; }
    append(doc, times.slice(next), Object.fromEntries([...lines].map(([key, line]) => [key, line.slice(next)])), every);
  }

  // Appends points to all lines, and extends the epoch and the holder that last until now. If samples are frequent, fewer of
  // them come than the chart has, and the time between them (`every`) is no gap.
  function append(doc, times, values, every) {
    doc.pace = Math.max(doc.interval, every || 0);
    const lines = doc.panels.flatMap((panel) => panel.lines.map((line) => ({ key: panel.key, line })));
    for (const { line } of lines) {
      line.made ??= line.x[line.x.length - 1];
      line.every = doc.pace;
    }
    for (const x of new Set(lines.map(({ line }) => line.x))) {
      const group = lines.filter(({ line }) => line.x === x);
      let before = doc.newest;
      times.forEach((time, at) => {
        appendPoints(group.map(({ line }) => line), group.map(({ key }) => (values[key] || [])[at] ?? null), { time, before, interval: doc.pace });
        before = Math.max(before, time);
      });
    }
    const end = times[times.length - 1];
    doc.newest = Math.max(doc.newest, end);
    appended += times.length;
    const epochs = doc.runs.flatMap((run) => run.bands.slice(-1));
    for (const span of [...epochs, ...doc.held]) { if (span[1] >= doc.end - MISSED * feed.interval) { span[1] = end; } }
    doc.end = end;
  }

  return {
    open,
    clear() { clear(); hide(place, true); },
    about() { load(false); },
    tick(news) {
      load(false);
      if (news && news.delta && !news.delta.series.whole) { grow(news.delta.series); }
    },
  };
}

// What a point of a chart is: a sample or a mean, and how long it is.
function pointNote(doc) {
  if (doc.step) { return [`means of ${format.short(doc.step)}`, coarseNote(doc), "shade: lowest to highest", doc.cut].filter(Boolean).join(", "); }
  return [doc.interval ? `${format.short(doc.interval)} samples` : "", doc.cut].filter(Boolean).join(", ");
}

// The longest means that are kept, and up to when, if points of the chart are shorter.
function coarseNote({ coarse, end }) {
  if (!coarse || !coarse.length) { return ""; }
  const step = Math.max(...coarse.map((one) => one[2]));
  const until = Math.max(...coarse.map((one) => one[1]));
  return `${format.short(step)}${until < end ? ` before ${format.clock(until, end)}` : ""}`;
}

// A document as the server sends it, with the times of each line in place of their index.
export function chartDocument(doc) {
  const panels = doc.panels.map((panel) => ({ ...panel, lines: panel.lines.map((line) => ({ ...line, x: doc.times[line.x] })) }));
  return { ...doc, panels };
}

// Appends a sample at `time` to lines that share their times, as a point or into the mean of its cell. `values`: one for each line,
// null if it has none. `before`: the time of the sample before, since a sample counts for the time since then.
export function appendPoints(lines, values, { time, before, interval }) {
  const { x, step } = lines[0];
  const last = step ? before : x[x.length - 1];
  if (time <= (last || 0) + 1e-3) { return; }
  if (!step) { push(lines, time, values); return; }
  const edge = x.length ? x[x.length - 1] + step / 2 : Math.floor(time / step) * step;
  const cells = Math.floor((time - edge) / step) + 1; // new ones up to this sample
  const lasted = time - before;
  const isPause = lasted > MISSED * interval;
  const none = lines.map(() => null);
  // If cells are shorter than that time, the sample is the value of all of them.
  for (let at = 0; at < cells; at += 1) { push(lines, edge + (at + 0.5) * step, isPause || at === cells - 1 ? none : values); }
  lines.forEach((line, at) => { if (format.known(values[at])) { addToCell(line, values[at], isPause ? interval : lasted); } });
}

function push(lines, time, values) {
  lines[0].x.push(time);
  lines.forEach((line, at) => {
    for (const list of [line.mean, line.low, line.high]) { if (list) { list.push(values[at]); } }
    line.filled = 0;
  });
}

// Adds a value that lasted so many seconds to the newest cell of a line.
/** @param {Line} line */
function addToCell(line, value, seconds) {
  const last = line.x.length - 1;
  const isFirst = !format.known(line.mean[last]);
  const filled = isFirst ? 0 : line.filled || 0;
  line.mean[last] = isFirst ? value : (line.mean[last] * filled + value * seconds) / (filled + seconds);
  if (line.low) {
    line.low[last] = isFirst ? value : Math.min(line.low[last], value);
    line.high[last] = isFirst ? value : Math.max(line.high[last], value);
  }
  line.filled = filled + seconds;
}
