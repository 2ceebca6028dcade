// The comparison of runs, beside what its callbacks on the server do: colors, zoom and files of its figure.
// @ts-check
import { rangeArguments, rangeOf, setArguments } from "./address.js";
import { dashPages, setDashProps } from "./dash.js";
import { elements } from "./dom.js";
import { feed } from "./feed.js";
import { watchScroll } from "./fitting.js";
import * as format from "./format.js";
import { figureFile, figureKeys, paintFigure } from "./plotly.js";
import { showTitle } from "./status.js";
import { chartTools, clampRange } from "./tools.js";

let figure = null; // as the server sent it
let range = null; // the zoom, in the units of the chart; null: all

const element = (name) => document.getElementById(`compare-${name}`);
const graph = () => element("graph").querySelector(".js-plotly-plot");
const noUpdate = () => window.dash_clientside.no_update;
const whole = () => figure.layout.xaxis.range.map((end) => end / figure.layout.meta.factor);
const painted = () => paintFigure(figure, element("course").clientWidth, range);

function draw() {
  if (figure) { setDashProps("compare-graph", { figure: painted() }); }
}

function zoom(wanted) {
  range = wanted && clampRange(wanted, whole());
  setArguments(rangeArguments(range));
  draw();
}

dashPages.compare = {
  ready() {
    const chart = { get doc() { const [begin, end] = whole(); return { axis: "", begin, end }; }, get range() { return figure && (range || whole()); } };
    element("zoom").append(chartTools(chart, zoom));
    for (const box of elements(document, "#compare .tablebox")) { new MutationObserver(watchScroll(box)).observe(box, { childList: true }); } // each answer brings a new table
    figureKeys(element("course"), graph);
  },
  show(params) {
    const before = JSON.stringify(range);
    range = rangeOf(params);
    if (JSON.stringify(range) !== before) { draw(); }
  },
  about: draw,
};

// Callbacks that run in the browser (routes/compare.py).
window.dash_clientside = window.dash_clientside || {};
window.dash_clientside.gpumon = {
  painted(given) {
    figure = given;
    return figure ? [painted(), { height: `${figure.layout.height}px` }] : [noUpdate(), { display: "none" }];
  },
  note_facts(facts) {
    if (facts.tab) { feed.keep({ values: { tab: { text: facts.tab, old: facts.tab } }, tables: {}, figures: {} }); }
    showTitle();
    dashPages.compare.again(facts.again);
  },
  zoomed(change) {
    if (!figure || !change) { return; }
    const ends = change["xaxis.range"] || [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    if (change["xaxis.autorange"]) { zoom(null); } // a double click
    else if (ends.every(format.known)) { zoom(ends.map((end) => end / figure.layout.meta.factor)); }
  },
  picture() {
    const kind = window.dash_clientside.callback_context.triggered_id.slice("compare-".length);
    if (graph()) { figureFile(graph(), kind, "compare"); }
  },
};
