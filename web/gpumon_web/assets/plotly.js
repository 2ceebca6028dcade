// Figures of Plotly in the colors of the theme: the one of the comparison, and any chart in a dialog over its page. A figure names
// colors by their role, as `@s0`, or `@s0/0.3` with an opacity, and holders of a GPU as `@holder0`.
// @ts-check
import { loadPlotly } from "./dash.js";
import { attribute, hide, make, put } from "./dom.js";
import * as format from "./format.js";
import { saveFile } from "./pen.js";
import { fetchJson } from "./request.js";
import { theme } from "./theme.js";
import { lowerBound } from "./trace.js";

const COLOR = /^@(\w+?)(?:\/([\d.]+))?$/;
const VALUE = 96; // px of the last value of a line, in the head of a panel
const MODEBAR = [["zoom2d", "pan2d", "resetScale2d", "toggleSpikelines"]];
const MODEBAR_HEIGHT = 26; // px above a figure
let drawOpen = () => {}; // draws the figure of the dialog in the current theme

// Replaces names of colors. They are only looked for under keys of colors, since any other text may come from a user.
function painted(value, key, holders) {
  if (typeof value === "string") {
    const named = key.endsWith("color") && COLOR.exec(value);
    return named ? theme.color(roleOf(named[1], holders), Number(named[2] || 1)) : value;
  }
  if (Array.isArray(value)) {
    const hasParts = value.length && (key === "color" || (typeof value[0] === "object" && value[0]));
    return hasParts ? value.map((one) => painted(one, key === "color" ? key : "", holders)) : value;
  }
  if (!value || typeof value !== "object") { return value; }
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, painted(one, name, holders)]));
}

const roleOf = (name, holders) => (name.startsWith("holder") ? theme.ofUser(holders[Number(name.slice("holder".length))]) : name);

const minutes = (time) => -new Date(time).getTimezoneOffset();
const utc = (offset) => `UTC${offset < 0 ? "−" : "+"}${Math.floor(Math.abs(offset) / 60)}${offset % 60 ? `:${String(Math.abs(offset) % 60).padStart(2, "0")}` : ""}`;

// Moves the times of a figure into the viewer's zone at the end of the figure, since Plotly shows times as UTC.
function inZone({ data, layout }, { axis }) {
  if (axis !== "time") { return { data, layout }; }
  const [begin, end] = layout.xaxis.range;
  const offset = minutes(end);
  const moved = (time) => time + offset * 60000;
  const xaxis = { ...layout.xaxis, range: [moved(begin), moved(end)] };
  if (minutes(begin) !== offset) { xaxis.title = { text: `times in ${utc(offset)}: the clocks were changed` }; }
  const shapes = layout.shapes.map((one) => (one.xref === "x" ? { ...one, x0: moved(one.x0), x1: moved(one.x1) } : one));
  return { data: data.map((line) => ({ ...line, x: line.x.map(moved) })), layout: { ...layout, xaxis, shapes } };
}

// A figure as it is drawn so wide (px). `range`: the part of the axis that is seen, in the units of the chart.
export function paintFigure(figure, width, range) {
  const { data, layout } = painted(figure, "", figure.layout.meta.holders);
  const { factor } = figure.layout.meta;
  const values = layout.annotations.filter((one) => one.name === "value").map((one) => -(one.xshift || 0));
  const room = width - Math.max(0, ...values) - 2 * VALUE;
  const annotations = layout.annotations.filter((one) => one.name !== "value" || room > 0);
  const xaxis = range ? { ...layout.xaxis, range: range.map((one) => one * factor) } : layout.xaxis;
  const family = getComputedStyle(document.body).fontFamily;
  const font = { ...layout.font, family };
  return inZone({ data, layout: { ...layout, annotations, xaxis, autosize: true, font } }, figure.layout.meta);
}

const written = (template, name, value) => template.replace(new RegExp(`%\\{${name}(:[^}]*)?\\}`), value);
const short = (value) => (typeof value === "number" ? Number(value.toPrecision(4)).toString() : value);

// The values at a position of the figure in an element, as a sentence.
function sentence(graph, lines, x) {
  const values = lines.map((line) => {
    const at = lowerBound(line.x, x);
    const near = at > 0 && (at === line.x.length || x - line.x[at - 1] < line.x[at] - x) ? at - 1 : at;
    if (!format.known(line.y[near])) { return ""; }
    if (line.text) { return line.text[near]; }
    return `${line.name} ${written(written(line.hovertemplate, "y", short(line.y[near])), "customdata", (line.customdata || [])[near])}`;
  });
  const { unifiedhovertitle: title } = graph.layout.xaxis;
  const place = title ? written(title.text, "x", short(x)) : new Date(x).toISOString().slice(0, 19).replace("T", " ");
  return `${place}: ${values.filter(Boolean).join(", ")}`;
}

// Lets arrow keys read the values of a figure, for screen readers as a sentence; Esc ends that. `graph()` is the element in which
// Plotly draws.
export function figureKeys(host, graph) {
  const spoken = make("p", { class: "sr", role: "status" });
  let at = -1;
  host.tabIndex = 0;
  host.after(spoken);
  const end = () => { at = -1; spoken.textContent = ""; if (graph()) { window.Plotly.Fx.unhover(graph()); } };
  host.addEventListener("blur", end);
  host.addEventListener("keydown", (press) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[press.key];
    if (press.key === "Escape") { end(); }
    if (!graph() || !step) { return; }
    const lines = graph().data.filter((line) => line.hoverinfo !== "skip");
    const longest = lines.reduce((most, line) => (line.x.length > most.x.length ? line : most));
    const last = longest.x.length - 1;
    at = at < 0 ? (step > 0 ? 0 : last) : Math.max(0, Math.min(last, at + step));
    window.Plotly.Fx.hover(graph(), { xval: longest.x[at] }, longest.xaxis + longest.yaxis);
    put(spoken, sentence(graph(), lines, longest.x[at]));
    press.preventDefault();
  });
}

// Saves a figure as an SVG or as a PNG with twice as many pixels. The PNG is drawn from the address of the SVG's data.
export async function figureFile(graph, kind, name) {
  const { width, height } = graph.getBoundingClientRect();
  const address = await window.Plotly.toImage(graph, { format: "svg", width, height });
  if (kind === "svg") { saveFile(`${name}.svg`, "image/svg+xml", decodeURIComponent(address.slice(address.indexOf(",") + 1))); return; }
  const picture = new Image();
  picture.src = address;
  await picture.decode();
  const canvas = make("canvas");
  Object.assign(canvas, { width: 2 * width, height: 2 * height });
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => { if (blob) { saveFile(`${name}.png`, "image/png", blob); } });
}

// A button that opens a chart as a figure. `name()`: its title; `address()`: where the figure is requested.
export function exploreButton(name, address) {
  return make("button", { class: "button explore", text: "Explore", title: "Open this chart in Plotly", click: () => open(name(), address()) });
}

async function open(title, address) {
  const tool = (text, click) => make("button", { class: "button", text, click });
  const place = make("div", { class: "explored" });
  const host = make("div", { role: "group", "aria-label": title }, place);
  const note = make("p", { class: "empty", text: "Loading the figure …" });
  const scale = tool("Log", () => rescale(scale.getAttribute("aria-pressed") !== "true"));
  const close = tool("Close", () => dialog.close());
  const head = make("div", { class: "cardhead" }, make("h2", { text: title }), scale,
    tool("PNG", () => figureFile(place, "png", "figure")), close);
  const dialog = make("dialog", { class: "explorer", "aria-label": title }, head, note, host);
  let figure = null;

  function rescale(isLog) {
    attribute(scale, "aria-pressed", String(isLog));
    window.Plotly.relayout(place, Object.fromEntries(figure.layout.meta.logged.map((axis) => [`${axis}.type`, isLog ? "log" : "linear"])));
  }

  hide(scale, true);
  document.body.append(dialog);
  dialog.addEventListener("close", () => {
    drawOpen = () => {};
    if (figure) { window.Plotly.purge(place); }
    dialog.remove();
  });
  dialog.showModal();
  try {
    [{ figure }] = await Promise.all([fetchJson(address), loadPlotly()]);
  } catch {
    put(note, "This figure cannot be loaded now. Close it and try again in a moment.");
    return;
  }
  if (!dialog.open) { return; }
  note.remove();
  hide(scale, !figure.layout.meta.logged.length);
  drawOpen = () => {
    const { data, layout } = paintFigure(figure, dialog.clientWidth, null);
    const margin = { ...layout.margin, t: layout.margin.t + MODEBAR_HEIGHT };
    window.Plotly.react(place, data, { ...layout, margin, height: layout.height + MODEBAR_HEIGHT, uirevision: "kept" }, { responsive: true, displaylogo: false, modeBarButtons: MODEBAR });
  };
  drawOpen();
  figureKeys(host, () => place);
}

theme.on(() => drawOpen());
