// The head of a chart: buttons that zoom and move, the choice of panels, and files to download.
// @ts-check
/** @import { Range } from "./types" */
import { setArguments } from "./address.js";
import { fillOnce, hide, make } from "./dom.js";
import { exploreButton } from "./plotly.js";
import { feed } from "./feed.js";
import * as format from "./format.js";
import { makeMenu } from "./menu.js";
import { saveFile } from "./pen.js";
import { readSetting, saveSetting } from "./settings.js";

const SHORTEST = 10; // s of a range
const FINEST = 500; // parts of another axis, one of which is its shortest range

// A range moved into limits; it stays as wide as it is if it can.
/** @param {number[]} range @param {number[]} limits @returns {Range} */
export function clampRange([from, to], [low, high]) {
  const width = Math.min(to - from, high - low);
  const begin = Math.max(low, Math.min(from, high - width));
  return [begin, begin + width];
}

// Finer points are requested this many ms after the last zoom, with some room to move on both sides.
export const SETTLES = 120;
export const withMargin = ([from, to]) => [Math.max(0, from - (to - from) / 4), to + (to - from) / 4];

// Fills the head of a chart's card: a note beside the title, the way back to the whole, and all tools. `name()` is the name of
// its files, `figure()` the address of the same chart as a figure of Plotly.
export function chartHead(card, { chart, go, choice, name, figure, back: text }) {
  const note = make("span", { class: "key cells" });
  const back = make("button", { class: "back", text, hidden: true, click: () => go(null) });
  const explorer = exploreButton(name, figure);
  card.querySelector("h2").after(note, back);
  card.querySelector(".cardhead").append(chartTools(chart, go), choice.node, explorer, chartFiles(chart, name, explorer));
  return { note, back };
}

// Buttons that zoom and move without a mouse. They change `chart.range`, and call `go` with the new one.
export function chartTools(chart, go) {
  const step = (text, title, change) => make("button", {
    class: "tool", text, title, "aria-label": title,
    click: () => {
      if (!chart.range) { return; }
      const [begin, end] = chart.range;
      const [from, to] = change(begin, end, end - begin);
      const lacking = (chart.doc.axis === "time" ? SHORTEST : (chart.doc.end - chart.doc.begin) / FINEST) - (to - from);
      go(lacking > 0 ? [from - lacking / 2, to + lacking / 2] : [from, to]);
    },
  });
  return make("div", { class: "tools", role: "group", "aria-label": "Zoom and move" },
    step("‹", "Earlier", (a, b, width) => [a - width / 2, b - width / 2]),
    step("+", "Zoom in", (a, b, width) => [a + width / 4, b - width / 4]),
    step("−", "Zoom out", (a, b, width) => [a - width / 2, b + width / 2]),
    step("›", "Later", (a, b, width) => [a + width / 2, b + width / 2]));
}

// The menu of files. On a phone it also has the Explore button, which stands beside it elsewhere.
function chartFiles(chart, name, explorer) {
  const stem = () => name().replace(/[^\w.-]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 80) || "chart";
  const caption = () => [name(), (chart.doc.axis === "time" ? chart.range : [feed.now]).map(format.moment).join(" – ")].join(" · ") + ` ${format.zone(feed.now)}`.trimEnd();
  const item = (text, click) => make("button", { text, click: () => { if (chart.doc) { click(); menu.close(); } } });
  const menu = makeMenu("files",
    make("button", { class: "narrow", text: "Explore", click: () => { menu.close(); explorer.click(); } }),
    item("PNG", () => chart.png(caption(), (blob) => { if (blob) { saveFile(`${stem()}.png`, "image/png", blob); } })),
    item("SVG", () => saveFile(`${stem()}.svg`, "image/svg+xml", chart.svg(caption()))),
    item("CSV", () => saveFile(`${stem()}.csv`, "text/csv", chart.csv())));
  menu.setLabel("Download");
  return menu.node;
}

// The choice of panels, which is in the address, and which this browser remembers under a key. `usual(all)`: the keys of the
// panels that are shown until the viewer chooses.
export function panelChoice(key, usual, changed) {
  const setting = `gpumon-panels-${key}`;
  const menu = makeMenu("panels");
  hide(menu.node, true); // until the panels are known
  let all = []; // [{key, title}]
  let chosen = null;
  try { chosen = JSON.parse(readSetting(setting)); } catch { chosen = null; }
  if (!Array.isArray(chosen) || !chosen.every((one) => typeof one === "string")) { chosen = null; }
  let linked = null; // panels of a link; they are no choice of the viewer

  const shown = () => {
    const wanted = linked || chosen || usual(all);
    const keys = all.filter((one) => wanted.includes(one.key)).map((one) => one.key);
    return keys.length ? keys : usual(all);
  };

  function choose(name, isShown) {
    const now = shown();
    chosen = isShown ? [...now, name] : now.filter((one) => one !== name);
    linked = null;
    saveSetting(setting, JSON.stringify(chosen));
    setArguments({ panels: chosen.join(",") });
    draw();
    changed();
  }

  function draw() {
    const now = shown();
    menu.setLabel(`${now.length} of ${all.length} panels`);
    fillOnce(menu.box, [all, now], () => all.map((one, at) => {
      const isShown = now.includes(one.key);
      const input = /** @type {HTMLInputElement} */ (make("input", { type: "checkbox", checked: isShown, disabled: isShown && now.length === 1 }));
      input.addEventListener("change", () => { choose(one.key, input.checked); menu.box.querySelectorAll("input")[at]?.focus(); });
      return make("label", {}, input, one.title);
    }));
  }

  return {
    node: menu.node,
    shown,
    open(params) { linked = params.get("panels") ? params.get("panels").split(",") : null; if (all.length) { draw(); } },
    // Takes over the panels that there are.
    offer(panels) { all = panels; hide(menu.node, !all.length); draw(); },
    get isKnown() { return all.length > 0; },
    // The panels to request before it is known which there are; null for the usual ones.
    get wanted() { return linked || chosen; },
  };
}
