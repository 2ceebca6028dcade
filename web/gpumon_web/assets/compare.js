// The comparison of runs, beside what its callbacks on the server fill: colors, zoom and files of its figure, and
// choices of the viewer, which are in the address.
// @ts-check
import { rangeArguments, rangeOf, setArguments } from "./address.js";
import { dashPages, setDashProps } from "./dash.js";
import { feed } from "./feed.js";
import { watchScroll } from "./fitting.js";
import * as format from "./format.js";
import { figureFile, figureKeys, paintFigure } from "./plotly.js";
import { showTitle } from "./status.js";
import { chartTools, clampRange } from "./tools.js";

let figure = null; // as it came
let range = null; // [from, to] in the units of the document; null: all of the axis

const element = (name) => document.getElementById(`compare-${name}`);
const graph = () => element("graph").querySelector(".js-plotly-plot");
const none = () => window.dash_clientside.no_update;
const whole = () => figure.layout.xaxis.range.map((one) => one / figure.layout.meta.factor);
const drawn = () => paintFigure(figure, element("course").clientWidth, range);

function draw() {
  if (figure) { setDashProps("compare-graph", { figure: drawn() }); }
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
    for (const box of document.querySelectorAll("#compare .tablebox")) { new MutationObserver(watchScroll(box)).observe(box, { childList: true }); } // each answer brings a new table
    figureKeys(element("course"), graph);
  },
  show(args) {
    const before = JSON.stringify(range);
    range = rangeOf(new URLSearchParams(args));
    if (JSON.stringify(range) !== before) { draw(); }
  },
  about: draw,
};

window.dash_clientside = window.dash_clientside || {};
window.dash_clientside.gpumon = {
  painted(found) {
    figure = found;
    return figure ? [drawn(), { height: `${figure.layout.height}px` }] : [none(), { display: "none" }];
  },
  note_facts(facts) {
    if (facts.tab) { feed.keep({ values: { tab: { text: facts.tab, old: facts.tab } }, tables: {}, figures: {} }); }
    showTitle();
    dashPages.compare.again(facts.again);
  },
  zoomed(moved) {
    const ends = moved && (moved["xaxis.range"] || [moved["xaxis.range[0]"], moved["xaxis.range[1]"]]);
    if (figure && moved && moved["xaxis.autorange"]) { zoom(null); } // a double click
    if (figure && ends && ends.every(format.known)) { zoom(ends.map((one) => one / figure.layout.meta.factor)); }
  },
  picture() {
    const kind = window.dash_clientside.callback_context.triggered_id.slice("compare-".length);
    if (graph()) { figureFile(graph(), kind, "compare"); }
  },
};
