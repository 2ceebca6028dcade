// A chart that comes whole with the values of the ledger, and again while its run goes on. It stays under a zoom, which is in the
// address. If it names an address of finer points (`finer`), a zoom shows those.
// @ts-check
import { rangeArguments, rangeOf, setArguments } from "./address.js";
import { hide, make, put } from "./dom.js";
import { feed } from "./feed.js";
import * as format from "./format.js";
import { chartDocument } from "./live_figure.js";
import { overview } from "./overview.js";
import { chartPanels } from "./panels.js";
import { position } from "./position.js";
import { latestAnswer } from "./request.js";
import { chartHead, clampRange, panelChoice, SETTLES, withMargin } from "./tools.js";

export function keptFigure(place) {
  const { keptFigure: name, loading, empty, whole } = place.dataset;
  const ask = latestAnswer();
  const problem = make("p", { class: "empty", text: loading });
  const chart = chartPanels(place, zoom);
  const brush = overview(zoom);
  const choice = panelChoice(name, (all) => all.filter((one) => one.usual).map((one) => one.key), () => show(true));
  const { note, back } = chartHead(place.closest(".card"), { chart, go: zoom, choice, name: () => document.title, figure, back: whole });
  let range = null; // the viewer's zoom in seconds; null for all
  let received = null; // the whole chart as it came
  let shown = null; // its document
  let wanted = null; // {of, from, to} of the finer points that were requested last
  let finer = null; // the same with their document, once they came
  let timer = 0;
  let wasSilent = false;
  place.before(brush.node);
  place.after(problem);
  hide(place, true);

  function zoom(given) {
    range = given && shown ? clampRange(given, edges(shown)) : given;
    setArguments(rangeArguments(range));
    hide(back, !range);
    show(true);
    refine();
  }

  // The address of the visible part as a figure.
  function figure() {
    const time = range ? `&from=${range[0]}&to=${range[1]}` : "";
    return `${shown.figure}&panels=${encodeURIComponent(choice.shown().join(","))}${time}${position.exact()}`;
  }

  const edges = (doc) => [doc.begin, doc.end];

  // The document with the finest points for the range.
  function finest() {
    const isCovered = range && finer && finer.of === shown.finer && finer.from <= range[0] && range[1] <= finer.to;
    return isCovered ? { ...finer.doc, begin: shown.begin, end: shown.end } : shown;
  }

  // Whether the run went on at the last answer and nothing is known of it since.
  const isSilent = () => Boolean(shown && shown.goesOn) && !feed.isFresh() && feed.state !== "ended";
  function timed(doc) {
    wasSilent = isSilent();
    if (!wasSilent) { return doc; }
    const until = feed.clock();
    return { ...doc, end: Math.max(doc.end, format.known(until) ? until : doc.end), heard: doc.end, until, silent: { title: feed.oldState(), age: feed.silence() } };
  }

  function show(isUrgent) {
    if (!shown) { return; }
    const keys = choice.shown();
    const doc = timed(finest());
    chart.show({ ...doc, panels: doc.panels.filter((panel) => keys.includes(panel.key)) }, range, isUrgent);
    brush.show(shown, range);
    const step = doc.step ? `points of ${format.short(doc.step)}, shade: lowest to highest` : "";
    put(note, [step, doc.cut].filter(Boolean).join(", "));
  }

  // Requests finer points once the zoom settles; an answer for another zoom is ignored.
  function refine() {
    clearTimeout(timer);
    timer = range && shown && shown.finer ? setTimeout(load, SETTLES) : 0;
  }

  function load() {
    if (!range || !shown || !shown.finer) { return; }
    const [from, to] = withMargin(range);
    const mine = { of: shown.finer, from, to };
    wanted = mine;
    ask(`${mine.of}&from=${from}&to=${to}${position.exact()}`, (answer) => {
      if (wanted !== mine || !shown || shown.finer !== mine.of) { return; }
      if (!answer) { wanted = null; return; } // requested again when the whole chart comes again
      finer = answer.chart && answer.chart.step < shown.step ? { ...mine, doc: chartDocument(answer.chart) } : null;
      if (range) { show(false); }
    });
  }

  // Limits the range of a link to the chart; a range outside of it shows all.
  function clampLink() {
    if (!range) { return; }
    const [low, high] = edges(shown);
    const [from, to] = range;
    range = to <= low || from >= high ? null : clampRange([Math.max(from, low), Math.min(to, high)], [low, high]);
  }

  function update() {
    const found = feed.view.figures.get(name);
    hide(place, !found);
    hide(problem, Boolean(found));
    put(problem, found === undefined ? loading : empty);
    if (!found) { hide(brush.node, true); }
    if (found && found !== received) {
      const isFirst = !shown;
      const end = shown ? shown.end : Infinity;
      received = found;
      shown = chartDocument(found);
      clampLink();
      choice.offer(shown.all);
      show(isFirst);
      // Finer points that reach the end of the chart have grown as well.
      if (!wanted || wanted.of !== shown.finer || wanted.to >= end) { refine(); }
    }
    if (isSilent() !== wasSilent) { show(false); }
    hide(back, !range || !found);
  }

  return {
    open(params) {
      range = rangeOf(params);
      choice.open(params);
      if (shown) { clampLink(); show(true); }
      update();
      refine();
    },
    clear() { shown = received = wanted = finer = null; clearTimeout(timer); chart.clear(); update(); },
    about: update,
    tick() { if (isSilent()) { show(false); } }, // new values come through about()
  };
}
