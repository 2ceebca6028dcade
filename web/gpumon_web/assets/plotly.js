// Figures of Plotly in the colors of the theme. A figure names a color as `@s0`, or `@s0/0.3` with an opacity.
// @ts-check
import { make, put } from "./dom.js";
import * as format from "./format.js";
import { saveFile } from "./pen.js";
import { theme } from "./theme.js";
import { lowerBound } from "./trace.js";

const COLOR = /^@(\w+?)(?:\/([\d.]+))?$/;

// Only under keys of colors, so that no text of a stranger is taken for one. Lists of numbers are passed on as they are.
function painted(value, key, holders) {
  if (typeof value === "string") {
    const named = key.endsWith("color") && COLOR.exec(value);
    return named ? theme.color(roleOf(named[1], holders), Number(named[2] || 1)) : value;
  }
  if (Array.isArray(value)) {
    const isOfParts = value.length && (key === "color" || (typeof value[0] === "object" && value[0]));
    return isOfParts ? value.map((one) => painted(one, key === "color" ? key : "", holders)) : value;
  }
  if (!value || typeof value !== "object") { return value; }
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, painted(one, name, holders)]));
}

// `holder2` has the color of that user of the figure.
function roleOf(name, holders) {
  return name.startsWith("holder") ? theme.ofUser(holders[Number(name.slice("holder".length))]) : name;
}

const minutes = (time) => -new Date(time).getTimezoneOffset();
const utc = (offset) => `UTC${offset < 0 ? "−" : "+"}${Math.floor(Math.abs(offset) / 60)}${offset % 60 ? `:${String(Math.abs(offset) % 60).padStart(2, "0")}` : ""}`;

// Plotly shows times as UTC, so the times of a figure are moved into the viewer's zone, as it is at the end of the figure.
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

// A figure as it is drawn in `width` px: `range` is the part of the axis that is seen, in the units of the document.
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
const VALUE = 96; // px of the last value of a line, in the head of a panel

const written = (template, name, value) => template.replace(new RegExp(`%\\{${name}(:[^}]*)?\\}`), value);
const short = (value) => (typeof value === "number" ? Number(value.toPrecision(4)).toString() : value);

// What the figure in `gd` has at a position, as a sentence.
function sentence(gd, lines, x) {
  const values = lines.map((line) => {
    const at = lowerBound(line.x, x);
    const near = at > 0 && (at === line.x.length || x - line.x[at - 1] < line.x[at] - x) ? at - 1 : at;
    if (!format.known(line.y[near])) { return ""; }
    if (line.text) { return line.text[near]; }
    return `${line.name} ${written(written(line.hovertemplate, "y", short(line.y[near])), "customdata", (line.customdata || [])[near])}`;
  });
  const { unifiedhovertitle: title } = gd.layout.xaxis;
  const place = title ? written(title.text, "x", short(x)) : new Date(x).toISOString().slice(0, 19).replace("T", " ");
  return `${place}: ${values.filter(Boolean).join(", ")}`;
}

// The keys ← and → read the values of the figure in `host`, for screen readers as a sentence; Esc ends that. `graph` gives
// the element that Plotly draws in.
export function figureKeys(host, graph) {
  const said = make("p", { class: "sr", role: "status" });
  let at = -1;
  host.tabIndex = 0;
  host.after(said);
  const end = () => { at = -1; said.textContent = ""; if (graph()) { window.Plotly.Fx.unhover(graph()); } };
  host.addEventListener("blur", end);
  host.addEventListener("keydown", (press) => {
    const gd = graph();
    const way = { ArrowLeft: -1, ArrowRight: 1 }[press.key];
    if (press.key === "Escape") { end(); }
    if (!gd || !way) { return; }
    const lines = gd.data.filter((line) => line.hoverinfo !== "skip");
    const longest = lines.reduce((most, line) => (line.x.length > most.x.length ? line : most));
    at = at < 0 ? (way > 0 ? 0 : longest.x.length - 1) : Math.max(0, Math.min(longest.x.length - 1, at + way));
    window.Plotly.Fx.hover(gd, { xval: longest.x[at] }, longest.xaxis + longest.yaxis);
    put(said, sentence(gd, lines, longest.x[at]));
    press.preventDefault();
  });
}

// A figure that is drawn in `graph` as a file; PNG twice as fine. An SVG comes as an address of its data, which a picture may have.
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
