// A chart that comes whole with what the ledger keeps, again and again while it grows: it stays under a zoom, which is in the
// address, and so in a link. One that says where finer points of a part come from (`finer`) is drawn with them there.
// @ts-check
import { rangeArguments, rangeOf, setArguments } from "./address.js";
import { hide, make, put } from "./dom.js";
import { exploreButton } from "./explore.js";
import { feed } from "./feed.js";
import * as format from "./format.js";
import { chartDocument } from "./live_figure.js";
import { overview } from "./overview.js";
import { chartPanels } from "./panels.js";
import { position } from "./position.js";
import { latestAnswer } from "./request.js";
import { chartFiles, chartTools, clampRange, panelChoice, SETTLES, withMargin } from "./tools.js";

// `place`: the element with data-kept-figure; gives what a page does with it.
export function keptFigure(place) {
  const { keptFigure: name, loading, empty, whole } = place.dataset;
  const ask = latestAnswer();
  const back = make("button", { class: "back", text: whole, hidden: true, click: () => go(null) });
  const note = make("p", { class: "empty", text: loading });
  const words = make("span", { class: "key cells" });
  const chart = chartPanels(place, go);
  const head = place.closest(".card").querySelector(".cardhead");
  const over = overview(go);
  const choice = panelChoice(name, (all) => all.filter((one) => one.usual).map((one) => one.key), () => shownAgain(true));
  let range = null; // the viewer's zoom, [from, to] in seconds; null: all
  let shown = null; // the whole chart
  let came = null; // as it came
  let wanted = null; // the finer part that was asked for last: what it is of, from, to
  let part = null; // that one, with its chart, once it came
  let timer = 0;
  let wasSilent = false;
  const explorer = exploreButton(() => document.title, explored);
  head.querySelector("h2").after(words, back);
  head.append(chartTools(chart, go), choice.node, explorer, chartFiles(chart, () => document.title, explorer));
  place.before(over.node);
  place.after(note);
  hide(place, true);

  function go(wished) {
    const all = shown && edges(shown);
    range = wished && all ? clampRange(wished, all) : wished;
    setArguments(rangeArguments(range));
    hide(back, !range);
    if (shown) { shownAgain(true); }
    refine();
  }

  // The address of the chart as a figure: the panels and the time that are seen.
  function explored() {
    const time = range ? `&from=${range[0]}&to=${range[1]}` : "";
    return `${shown.figure}&panels=${encodeURIComponent(choice.shown().join(","))}${time}${position.exact()}`;
  }

  const edges = (doc) => [doc.begin, doc.end];
  const holds = (found) => Boolean(found) && found.of === shown.finer && found.from <= range[0] && range[1] <= found.to;
  const best = () => (range && holds(part) ? { ...part.doc, begin: shown.begin, end: shown.end } : shown);

  // Of a run that went on when something was last heard: nothing is known of it since.
  const isSilent = () => Boolean(shown && shown.goesOn) && !feed.isFresh() && feed.state !== "ended";
  function timed(doc) {
    wasSilent = isSilent();
    if (!wasSilent) { return doc; }
    const until = feed.clock();
    return { ...doc, end: Math.max(doc.end, format.known(until) ? until : doc.end), heard: doc.end, until, silent: { title: feed.oldState(), age: feed.silence() } };
  }

  // The panels that the viewer chose, of the best chart that there is.
  function shownAgain(now) {
    if (!shown) { return; }
    const keys = choice.shown();
    const doc = timed(best());
    chart.show({ ...doc, panels: doc.panels.filter((panel) => keys.includes(panel.key)) }, range, now);
    over.show(shown, range);
    const step = doc.step ? `points of ${format.short(doc.step)}, shade: lowest to highest` : "";
    put(words, [step, doc.cut].filter(Boolean).join(", "));
  }

  // Finer points once the zoom settles; what was on its way for another zoom comes to nothing.
  function refine() {
    clearTimeout(timer);
    timer = range && shown && shown.finer ? setTimeout(load, SETTLES) : 0;
  }

  function load() {
    if (!range || !shown || !shown.finer) { return; }
    const [from, to] = withMargin(range);
    const mine = { of: shown.finer, from, to };
    wanted = mine;
    ask(`${mine.of}&from=${from}&to=${to}${position.exact()}`, (found) => {
      if (wanted !== mine || !shown || shown.finer !== mine.of) { return; }
      if (!found) { wanted = null; return; } // asked for with the next whole one
      part = found.chart && found.chart.step < shown.step ? { ...mine, doc: chartDocument(found.chart) } : null;
      if (range) { shownAgain(false); }
    });
  }

  // A link may name any time: one that has nothing of the chart shows all of it.
  function bound(doc) {
    if (!range) { return; }
    const [low, high] = edges(doc);
    const [from, to] = range;
    range = to <= low || from >= high ? null : clampRange([Math.max(from, low), Math.min(to, high)], [low, high]);
  }

  function draw() {
    const found = feed.view.figures.get(name);
    hide(place, !found);
    hide(note, Boolean(found));
    put(note, found === undefined ? loading : empty);
    if (!found) { over.hide(); }
    if (found && found !== came) {
      const isFirst = !shown;
      const end = shown ? shown.end : Infinity;
      came = found;
      shown = chartDocument(found);
      bound(shown);
      choice.offer(shown.all);
      shownAgain(isFirst);
      // A part that reached the end of the chart has grown; earlier parts stay.
      if (!wanted || wanted.of !== shown.finer || wanted.to >= end) { refine(); }
    }
    if (shown && isSilent() !== wasSilent) { shownAgain(false); }
    hide(back, !range || !found);
  }

  return {
    open(params) {
      range = rangeOf(params);
      choice.open(params);
      if (shown) { bound(shown); shownAgain(true); }
      draw();
      refine();
    },
    clear() { shown = came = wanted = part = null; clearTimeout(timer); chart.clear(); draw(); },
    about: draw,
    tick() { if (isSilent()) { shownAgain(false); } }, // else it comes with what the ledger keeps
  };
}
