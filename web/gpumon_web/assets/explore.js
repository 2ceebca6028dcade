// A chart in Plotly, in a dialog over the page: the figure that the chart shows, to look into it. The server makes it of the
// same description; plotly.js is loaded with the first one.
// @ts-check
import { loadPlotly } from "./dash.js";
import { attribute, hide, make, put } from "./dom.js";
import { figureFile, figureKeys, paintFigure } from "./plotly.js";
import { fetchJson } from "./request.js";
import { theme } from "./theme.js";

const BUTTONS = [["zoom2d", "pan2d", "resetScale2d", "toggleSpikelines"]];
const TOOLS = 26; // px above the figure for Plotly's own buttons
let draw = () => {}; // the figure that is open, in the colors of the theme

// A button that opens a figure. `name()`: what the figure is of; `address()`: where it comes from.
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
    draw = () => {};
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
  draw = () => {
    const { data, layout } = paintFigure(figure, dialog.clientWidth, null);
    const margin = { ...layout.margin, t: layout.margin.t + TOOLS };
    window.Plotly.react(place, data, { ...layout, margin, height: layout.height + TOOLS, uirevision: "kept" }, { responsive: true, displaylogo: false, modeBarButtons: BUTTONS });
  };
  draw();
  figureKeys(host, () => place);
}

theme.on(() => draw());
