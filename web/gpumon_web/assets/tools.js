// The head of a chart: buttons that zoom and move, panels to choose, and files to download; and windows of time in addresses.
// @ts-check
/** @import { Range } from "./types" */
import { fillOnce, hide, make } from "./dom.js";
import { feed } from "./feed.js";
import * as format from "./format.js";
import { makeMenu } from "./menu.js";
import { saveFile } from "./pen.js";
import { setArguments } from "./address.js";
import { readSetting, saveSetting } from "./settings.js";

const SHORTEST = 10; // s of a window
const FINEST = 500; // of an axis that is no time, such a part is one

// A window inside of what there is, as wide as it was where that can be.
/** @param {number[]} range @param {number[]} limits @returns {Range} */
export function clampRange([from, to], [low, high]) {
  const wide = Math.min(to - from, high - low);
  const begin = Math.max(low, Math.min(from, high - wide));
  return [begin, begin + wide];
}

// Finer points are asked for so many ms after the last zoom, with some room to move on both sides.
export const SETTLES = 120;
export const withMargin = ([from, to]) => [Math.max(0, from - (to - from) / 4), to + (to - from) / 4];

// Buttons that zoom and move without a mouse; `chart.range` is where they begin, `go(range)` where they lead.
export function chartTools(chart, go) {
  const step = (name, title, change) => make("button", {
    class: "tool", text: name, title, "aria-label": title,
    click: () => {
      const seen = chart.range;
      if (!seen) { return; }
      const [from, to] = change(seen[0], seen[1], seen[1] - seen[0]);
      const short = (chart.doc.axis === "time" ? SHORTEST : (chart.doc.end - chart.doc.begin) / FINEST) - (to - from);
      go(short > 0 ? [from - short / 2, to + short / 2] : [from, to]);
    },
  });
  return make("div", { class: "tools", role: "group", "aria-label": "Zoom and move" },
    step("‹", "Earlier", (a, b, wide) => [a - wide / 2, b - wide / 2]),
    step("+", "Zoom in", (a, b, wide) => [a + wide / 4, b - wide / 4]),
    step("−", "Zoom out", (a, b, wide) => [a - wide / 2, b + wide / 2]),
    step("›", "Later", (a, b, wide) => [a + wide / 2, b + wide / 2]));
}

// Files of a chart; `name()` is what they are called. On a phone the menu has what stands beside it elsewhere, too: `more`.
export function chartFiles(chart, name, more) {
  const stem = () => name().replace(/[^\w.-]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 80) || "chart";
  const caption = () => [name(), (chart.doc.axis === "time" ? chart.range : [feed.now]).map(format.moment).join(" – ")].join(" · ") + ` ${format.zone(feed.now)}`.trimEnd();
  const item = (text, click) => make("button", { text, click: () => { if (chart.doc) { click(); menu.close(); } } });
  const menu = makeMenu("files",
    item("PNG", () => chart.png(caption(), (blob) => { if (blob) { saveFile(`${stem()}.png`, "image/png", blob); } })),
    item("SVG", () => saveFile(`${stem()}.svg`, "image/svg+xml", chart.svg(caption()))),
    item("CSV", () => saveFile(`${stem()}.csv`, "text/csv", chart.csv())));
  if (more) { menu.box.prepend(make("button", { class: "narrow", text: more.textContent, click: () => { menu.close(); more.click(); } })); }
  menu.setLabel("Download");
  return menu.node;
}

// Which panels are shown, remembered by this browser under `key`, and in the address as `panels`.
// `usual(all)`: the keys of the panels that are shown until the viewer chooses.
export function panelChoice(key, usual, changed) {
  const KEY = `gpumon-panels-${key}`;
  const menu = makeMenu("panels");
  hide(menu.node, true); // until it is known which there are
  let all = [];
  let chosen = null;
  try { chosen = JSON.parse(readSetting(KEY)); } catch { chosen = null; }
  if (!Array.isArray(chosen) || !chosen.every((one) => typeof one === "string")) { chosen = null; }
  let linked = null; // panels of a link, which are no choice of the viewer

  const shown = () => {
    const wanted = linked || chosen || usual(all);
    const found = all.filter((one) => wanted.includes(one.key)).map((one) => one.key);
    return found.length ? found : usual(all);
  };
  function pick(name, is) {
    const now = shown();
    chosen = is ? [...now, name] : now.filter((one) => one !== name);
    linked = null;
    saveSetting(KEY, JSON.stringify(chosen));
    setArguments({ panels: chosen.join(",") });
    draw();
    changed();
  }
  function draw() {
    const now = shown();
    menu.setLabel(`${now.length} of ${all.length} panels`);
    fillOnce(menu.box, [all, now], () => all.map((one) => {
      const input = make("input", { type: "checkbox" });
      input.checked = now.includes(one.key);
      input.disabled = input.checked && now.length === 1;
      input.addEventListener("change", () => { pick(one.key, input.checked); const again = menu.box.querySelectorAll("input")[all.indexOf(one)]; if (again) { again.focus(); } });
      return make("label", {}, input, one.title);
    }));
  }
  return {
    node: menu.node,
    shown,
    open(params) { const given = params.get("panels"); linked = given ? given.split(",") : null; if (all.length) { draw(); } },
    // Those that there are: [{key, title}]
    offer(found) { all = found; hide(menu.node, !all.length); draw(); },
    get isKnown() { return all.length > 0; },
    // What the server is asked for before anything is known; null: what is usual.
    get wanted() { return linked || chosen; },
  };
}
