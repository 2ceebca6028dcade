// The live chart of a page: fetched for the subject and the arguments of the address, grown by the page's lines at each
// tick, and kept under a zoom. The layout says where it comes from, which value names its subject, and which arguments
// have buttons; which panels are shown is the viewer's choice, remembered by the browser.
// @ts-check
import { rangeArguments, rangeOf, setArguments } from "./address.js";
import { attribute, hide, make, put } from "./dom.js";
import { exploreButton } from "./explore.js";
import { feed } from "./feed.js";
import * as format from "./format.js";
import { appendPoints } from "./growth.js";
import { chartPanels } from "./panels.js";
import { position } from "./position.js";
import { latestAnswer } from "./request.js";
import { redrawPage } from "./router.js";
import { chartFiles, chartTools, clampRange, panelChoice, SETTLES, withMargin } from "./tools.js";

const ROOM = 240; // points that come until the chart is asked for again
const FUTURE = 600; // s beyond now that are requested, so that a zoom up to now keeps growing
const SLACK = 600; // s that a link may reach beyond what there is
const UNREAD = 10000; // ms after which a chart without its history is asked for again
const FEW = 200;
const MANY = 1200;

export function liveFigure(place) {
  const { figure: address, subject: subjectName, outline: outlineName, state: stateName, panels: usualPanels } = place.dataset;
  const ask = latestAnswer();
  const card = place.closest(".card");
  const windows = card.querySelector("[data-usual]");
  const options = [...windows.querySelectorAll("[data-value]")];
  const back = make("button", { class: "back", text: "Back to live", hidden: true, click: () => go(null) });
  const cells = make("span", { class: "key cells" }); // beside the title, so that no zoom moves the chart
  const note = make("p", { class: "empty", hidden: true });
  const chart = chartPanels(place, (range) => go(range));
  const choice = panelChoice("gpu", () => usualPanels.split(" "), () => load(true));
  const fileName = () => [document.title, place.dataset.name].filter(Boolean).join(" ");
  const explorer = exploreButton(fileName, explored);
  card.querySelector("h2").after(cells, back);
  card.querySelector(".cardhead").append(chartTools(chart, (range) => go(range)), choice.node, explorer, chartFiles(chart, fileName, explorer));
  place.before(note);
  let view = { window: windows.dataset.usual, range: null };
  let subject = "";
  let tail = true; // whether the chart reaches to now
  let resets = 0; // how often lines had been replaced when the chart was requested
  let begin = 0;
  let known = null; // [from, to] of what there is, in seconds
  let asked = ""; // what the chart that is shown or asked for is of
  let pending = false;
  let grown = 0; // points that came since
  let outline = "";
  let rest = 0;
  let timer = 0;
  let first = true;
  let lacks = Infinity; // when to ask again, as the history could not be read
  let beyond = ""; // what a link asked for that there is not

  for (const button of options) {
    button.addEventListener("click", () => {
      const isOther = Boolean(view.range) || view.window !== button.dataset.value;
      view.window = button.dataset.value;
      go(null, isOther);
    });
  }

  function open(params) {
    const before = view.window;
    const given = params.get("window");
    view = { window: options.some((button) => button.dataset.value === given) ? given : windows.dataset.usual, range: rangeOf(params) };
    choice.open(params);
    beyond = "";
    if (before !== view.window) { clear(); }
    if (resets !== feed.resets) { clear(); hide(place, true); } // what it shows may lie behind where the viewer is now
    pressed();
  }

  function clear() { asked = ""; chart.clear(); first = true; }

  // The address of the chart as a figure: the time that is seen, in as many points as there are.
  function explored() {
    const [from, to] = seen();
    return `${address}${encodeURIComponent(subject)}&as=figure&panels=${encodeURIComponent(choice.shown().join(","))}&from=${from}&to=${to}${position.exact()}`;
  }

  // A link that shows the same elsewhere; the browser's history keeps pages and windows, and not each zoom.
  function remember(isStep) {
    setArguments({ window: view.window, ...rangeArguments(view.range) }, isStep);
    redrawPage();
  }

  function go(range, isStep) {
    view.range = range && known ? clampRange(range, [known[0], Math.max(known[1], feed.now)]) : range;
    beyond = "";
    remember(isStep);
    pressed();
    if (chart.doc) { chart.show(chart.doc, seen(), true); }
    clearTimeout(timer);
    timer = setTimeout(() => load(true), range ? SETTLES : 0);
  }

  function pressed() {
    for (const button of options) {
      attribute(button, "aria-pressed", String(!view.range && button.dataset.value === view.window));
    }
    hide(back, !view.range);
    put(back, feed.recorded ? "Back to the position" : "Back to live");
  }

  // The visible part of the chart: the zoom, else the window up to now.
  function seen() {
    if (view.range) { return view.range; }
    const now = feed.clock();
    if (view.window === "all") { return [Math.min(begin, now - 10), now]; }
    const length = Number(view.window);
    return [Math.max(now - length, Math.min(begin, now - Math.min(length, 30))), now];
  }

  // Request the chart if it is of something else, if an epoch began, or if it has grown too long.
  function load(must) {
    const { values } = feed.view;
    const named = values.get(subjectName) || "";
    if (!named) { return; }
    if (named !== subject) { subject = named; clear(); }
    const now = values.get(outlineName);
    const panels = choice.isKnown ? choice.shown() : choice.wanted || usualPanels.split(" ");
    const of = JSON.stringify([feed.resets, subject, view]);
    const wanted = `${of} ${panels}`;
    if (!must && wanted === asked && (now === outline || performance.now() < rest) && performance.now() < lacks) {
      if (chart.doc && !feed.isFresh()) { again(); }
      return;
    }
    asked = wanted;
    outline = now;
    if (resets !== feed.resets) { resets = feed.resets; tail = false; } // what comes next does not join on
    let query = view.window === "all" ? "" : `&window=${view.window}`;
    if (view.range) {
      const [start, until] = withMargin(view.range);
      const end = Math.min(until, feed.now + FUTURE);
      query = start < end ? `&from=${start}&to=${end}` : "&window=10"; // what there is comes with every answer
    }
    query += position.exact();
    const points = Math.max(FEW, Math.min(MANY, Math.round((place.clientWidth || 900) * (view.range ? 3 / 2 : 1))));
    if (!chart.doc) { hide(note, false); put(note, "Loading the chart …"); hide(place, true); }
    pending = true;
    ask(`${address}${encodeURIComponent(subject)}&points=${points}&panels=${encodeURIComponent(panels.join(","))}${query}`, (found, took) => {
      pending = false;
      lacks = !found || found.problem ? performance.now() + UNREAD : Infinity;
      rest = performance.now() + Math.max(2000, 20000 * took);
      if (!found) { asked = ""; return; }
      known = format.known(found.known.begin) ? [found.known.begin, found.known.end] : null;
      const outside = clamp();
      const doc = chartDocument(found.chart);
      const isSilent = silent() && doc.panels.some((panel) => panel.lines.some((line) => line.x.length));
      const drawable = !outside && (isSilent || doc.panels.some((panel) => panel.lines.some((line) => line.mean.some((value) => value !== null))));
      hide(place, !drawable);
      const text = unread(found.problem) || outside || beyond || (drawable ? kept(found.known) : "No samples in this period.");
      hide(note, !text);
      put(note, text);
      put(cells, drawable ? [about(doc), since(found.known)].filter(Boolean).join("; ") : "");
      choice.offer(doc.all);
      // Of a GPU that lacks some of the usual panels, the others are all that would be asked for now.
      const given = String(doc.panels.map((panel) => panel.key));
      if (given === String(choice.shown())) { asked = `${of} ${given}`; }
      begin = found.begin;
      tail = !view.range || found.end >= feed.now - 2 * feed.interval;
      grown = 0;
      doc.goesOn = tail;
      doc.known = known ? known[0] : 0;
      doc.newest = doc.end; // of the samples that are in the lines
      if (tail) { catchUp(doc); }
      chart.show(timed(doc), seen(), first || must);
      first = false;
    });
  }

  // Behind the newest sample, what is not known yet is no empty place.
  function timed(doc) {
    doc.until = tail ? feed.clock() : 0;
    doc.silent = tail ? silent() : null;
    if (tail && format.known(feed.now)) { doc.end = Math.max(doc.end, feed.now); }
    return doc;
  }

  // Why this GPU has no values of now, and for how long where its last one does not say that.
  function silent() {
    const isOld = !feed.isFresh() && feed.state !== "ended"; // an end is the last that there is, and as it was
    const one = feed.value(stateName);
    if (one && one.silent && (one.lasts || !isOld)) { return one.silent; }
    return isOld ? { title: feed.oldState(), age: feed.silence() } : null;
  }

  function again() { chart.show(timed(chart.doc), seen()); }

  // A link may name any time: it shows what there is of it, and says so. Gives what is wrong where there is nothing.
  function clamp() {
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

  const unread = (why) => (why ? `The history cannot be read now: ${why}. What is shown was read before, or is new.` : "");

  const kept = (all) => (view.window === "all" && !view.range && all.cut ? `Only the last ${format.span(all.end - all.begin)} are kept.` : "");

  // Of a window that is longer than what there is: from when on that is.
  function since(all) {
    const isShort = !view.range && view.window !== "all" && format.known(all.begin) && all.begin > feed.now - Number(view.window) + feed.interval;
    return isShort ? `kept since ${format.moment(all.begin)}` : "";
  }

  // What a point is, and what the shade is.
  function about(doc) {
    if (doc.step) { return [`means of ${format.short(doc.step)}`, longer(doc), "shade: lowest to highest", doc.cut].filter(Boolean).join(", "); }
    return [doc.interval ? `${format.short(doc.interval)} samples` : "", doc.cut].filter(Boolean).join(", ");
  }

  // Where less is kept than the points show: the longest means, and up to when.
  function longer({ coarse, end }) {
    if (!coarse || !coarse.length) { return ""; }
    const step = Math.max(...coarse.map((one) => one[2]));
    const until = Math.max(...coarse.map((one) => one[1]));
    return `${format.short(step)}${until < end ? ` before ${format.clock(until, end)}` : ""}`;
  }

  // Points that are new at the end of the lines.
  function grow({ t: times, lines: values, every }) {
    const { doc } = chart;
    if (!doc || !times.length || !tail) { return; }
    if (grown + times.length > ROOM) { // a shorter chart, with these points in it, is on its way
      if (!pending) { asked = ""; load(false); }
      return;
    }
    extend(doc, times, values, every);
    again();
  }

  // Points that came while the chart was on its way.
  function catchUp(doc) {
    const { t: times, lines, every } = feed.view.series;
    const next = times.findIndex((time) => time > doc.end + 1e-3);
    if (next < 0) { return; }
    extend(doc, times.slice(next), Object.fromEntries([...lines].map(([key, line]) => [key, line.slice(next)])), every);
  }

  // Of fast samples fewer are sent than the chart was made of: no gap is between those.
  function extend(doc, times, values, every) {
    doc.pace = Math.max(doc.interval, every || 0);
    const lines = doc.panels.flatMap((panel) => panel.lines.map((line) => ({ key: panel.key, line })));
    for (const { line } of lines) {
      line.made ??= line.x[line.x.length - 1];
      line.every = doc.pace;
    }
    for (const x of new Set(lines.map(({ line }) => line.x))) {
      const mine = lines.filter(({ line }) => line.x === x);
      let before = doc.newest;
      times.forEach((time, at) => {
        appendPoints(mine.map(({ line }) => line), mine.map(({ key }) => (values[key] || [])[at] ?? null), { time, before, interval: doc.pace });
        before = Math.max(before, time);
      });
    }
    doc.newest = Math.max(doc.newest, times[times.length - 1]);
    grown += times.length;
    const end = times[times.length - 1];
    for (const run of doc.runs) {
      const newest = run.bands[run.bands.length - 1];
      if (newest && newest[1] >= doc.end - 3 * feed.interval) { newest[1] = end; }
    }
    for (const span of doc.held) { if (span[1] >= doc.end - 3 * feed.interval) { span[1] = end; } }
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

// A document as charts have it: its lines with the times that they name.
export function chartDocument(found) {
  const panels = found.panels.map((panel) => ({ ...panel, lines: panel.lines.map((line) => ({ ...line, x: found.times[line.x] })) }));
  return { ...found, panels };
}
