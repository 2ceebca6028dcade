// The map of a cluster: of few nodes each GPU, in its person's color and as high as it is used; of many a block a node,
// its cells by state, on a canvas with keys and pointer.
// @ts-check
import { fillOnce, hide, make, put } from "./dom.js";
import { feed } from "./feed.js";
import * as format from "./format.js";
import { canvasPen } from "./pen.js";
import { person, theme } from "./theme.js";

const CELLS_ACROSS = 4;
const LEAST = 3; // px of a cell; below, a node is one cell
const GAP = 3; // px between nodes
const TOP = 18; // px of the racks' names
const LEFT = 22; // px of the slots' numbers
const MOST_TALL = 13; // px of a cell
const HEAT = [0.1, 0.18, 0.28, 0.4]; // use recedes, so that free, idle and lost stand out
const STATES = ["busy", "held_idle", "unknown", "lost", "free"];
const WORDS = { busy: "busy", held_idle: "allocated, idle", unknown: "unknown", lost: "lost", free: "free" };
const WORST = ["lost", "held_idle", "free", "unknown", "busy"];
const address = (name) => `#/node/${encodeURIComponent(name)}`;

export function nodeMap(node, value) {
  if (!value) { node.replaceChildren(); return; }
  if (value.tiles) { tiles(node, value.tiles); } else { map(node, value.racks); }
}

function tiles(node, all) {
  const fresh = feed.isFresh();
  fillOnce(node, [all, theme.isDark(), fresh], () => {
    const users = [...new Set(all.flatMap((one) => one.gpus.map(([, , user]) => user)))].filter(Boolean).sort();
    const key = make("p", { class: "key people" }, ...users.map((user) => person(user)));
    return [users.length ? key : null, make("div", { class: "nodetiles" }, ...all.map(tile))].filter(Boolean);
  });
}

function tile(one) {
  const bars = make("span", { class: "gpubars", "aria-hidden": "true" }, ...one.gpus.map(([number, state, user, used]) => {
    const bar = make("i", { class: `${state} ${user ? theme.mark(user) : ""}`.trim(), title: `${number ? `GPU ${number}, ` : ""}${WORDS[state]}${user ? `, ${user}` : ""}${used === null ? "" : `, ${format.percent(used)}`}` }, make("b", {}));
    bar.style.setProperty("--c", `var(--${user ? theme.ofUser(user) : "rest"})`);
    bar.firstChild.style.height = state === "busy" ? `${(used || 0) * 100}%` : "0";
    return bar;
  }));
  return make("a", { class: `nodetile ${one.level}`, href: address(one.name), title: one.name, "aria-label": `${one.name}, ${one.word}` },
    make("span", { class: "nodehead" }, make("b", { text: one.label }), make("span", { text: one.word })), bars);
}

// One canvas; where it is and what is under it are kept with it.
function map(node, racks) {
  let here = node.gpumonMap;
  if (!here || !here.canvas.isConnected) {
    const canvas = make("canvas", { class: "nodecanvas", tabindex: "0", role: "application", "aria-label": "Nodes by rack: arrow keys move, Enter opens" });
    const pill = make("div", { class: "nodepill", hidden: true, "aria-live": "polite" });
    const states = [["free", "free"], ["held_idle", "allocated, idle"], ["busy", "used"], ["lost", "lost"], ["silent", "silent"], ["unknown", "unknown"]];
    const key = make("p", { class: "key" }, ...states.flatMap(([state, words]) => [make("i", { class: `n-${state}` }), words]));
    node.replaceChildren(key, make("div", { class: "nodeplace" }, canvas, pill));
    here = node.gpumonMap = { canvas, pill, at: null };
    canvas.addEventListener("pointermove", (event) => point(here, under(here, event)));
    canvas.addEventListener("pointerleave", () => point(here, null));
    canvas.addEventListener("click", (event) => { const found = under(here, event); if (found) { location.hash = address(found.one[0]); } });
    canvas.addEventListener("keydown", (event) => move(here, event));
    canvas.addEventListener("blur", () => point(here, null));
  }
  here.racks = racks;
  draw(here);
}

function draw(here) {
  const { canvas, racks } = here;
  const width = canvas.parentElement.clientWidth;
  if (!width) { return; }
  const slots = Math.max(...racks.map((rack) => rack.nodes.length));
  const column = (width - LEFT) / racks.length;
  const gpus = Math.max(...racks.flatMap((rack) => rack.nodes.map((one) => (one ? one[8] : 0))), 1);
  const across = Math.min(CELLS_ACROSS, gpus);
  const cell = Math.min(MOST_TALL, Math.floor((column - GAP) / across));
  const isWhole = cell < LEAST;
  const down = isWhole ? 1 : Math.ceil(gpus / across);
  const side = isWhole ? Math.max(2, Math.min(MOST_TALL, Math.floor(column) - 1)) : cell;
  const row = down * side + (isWhole ? 1 : GAP);
  const height = TOP + slots * row;
  Object.assign(here, { column, row, slots });
  canvas.style.height = `${height}px`;
  const pen = canvasPen(canvas, width, height, window.devicePixelRatio || 1);
  labels(pen, racks, slots, column, row);
  const isOld = !feed.isFresh();
  racks.forEach((rack, x) => rack.nodes.forEach((one, y) => {
    if (!one) { return; } // a slot without a node
    const left = Math.round(LEFT + x * column);
    const top = TOP + y * row;
    const wide = isWhole ? side : across * side;
    if (one[7]) { silent(pen, left, top, wide, down * side); return; }
    if (isWhole) { pen.fillStyle = color(worst(one), one[6], isOld); pen.fillRect(left, top, side, side); return; }
    let at = 0;
    STATES.forEach((state, index) => {
      for (let count = 0; count < one[index + 1]; count += 1, at += 1) {
        pen.fillStyle = color(state, one[6], isOld);
        pen.fillRect(left + (at % across) * side, top + Math.floor(at / across) * side, side - 1, side - 1);
      }
    });
  }));
  if (here.at) { frame(pen, here, here.at); }
}

const worst = (one) => WORST.find((state) => one[STATES.indexOf(state) + 1] > 0) || "unknown";

function color(state, used, isOld) {
  if (isOld) { return theme.color("mut", state === "busy" ? 0.3 : 0.15); }
  if (state === "busy") { return theme.color("acc", used === null ? HEAT[0] : HEAT[Math.min(3, Math.floor(used / 25))]); }
  return state === "unknown" || (state === "free" && !feed.answered) ? theme.color("mut", 0.35) : theme.color({ free: "ok", held_idle: "warn", lost: "bad" }[state]);
}

function silent(pen, left, top, wide, tall) {
  pen.strokeStyle = theme.color("bad");
  pen.lineWidth = 1;
  pen.setLineDash([2, 2]);
  pen.strokeRect(left + 0.5, top + 0.5, wide - 2, tall - 2);
  pen.setLineDash([]);
}

// Names of racks and numbers of slots, where there is room for them.
function labels(pen, racks, slots, column, row) {
  pen.fillStyle = theme.color("mut");
  pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
  pen.textBaseline = "alphabetic";
  let free = 0;
  racks.forEach((rack, x) => {
    const left = LEFT + x * column;
    if (left < free) { return; }
    pen.fillText(rack.name, left, 11);
    free = left + pen.measureText(rack.name).width + 10;
  });
  for (let slot = 0; slot < slots; slot += slots > 10 ? 5 : 1) { pen.fillText(String(slot + 1), 0, TOP + slot * row + 9); }
}

function frame(pen, { column, row }, { x, y }) {
  pen.strokeStyle = theme.color("ink");
  pen.lineWidth = 1.5;
  pen.strokeRect(Math.round(LEFT + x * column) - 1.5, TOP + y * row - 1.5, column - 1, row);
}

function under(here, event) {
  const box = here.canvas.getBoundingClientRect();
  return place(here, Math.floor((event.clientX - box.left - LEFT) / here.column), Math.floor((event.clientY - box.top - TOP) / here.row));
}

function place({ racks }, x, y) {
  const one = racks[x] && racks[x].nodes[y];
  return one ? { x, y, one } : null;
}

function move(here, event) {
  const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (event.key === "Enter" && here.at) { location.hash = address(here.at.one[0]); }
  if (event.key === "Escape") { point(here, null); }
  if (!step) { return; }
  event.preventDefault();
  let [x, y] = here.at ? [here.at.x + step[0], here.at.y + step[1]] : [0, 0];
  const [right, down] = here.at ? step : [0, 1];
  while (here.racks[x] && y >= 0 && y < here.slots && !place(here, x, y)) { x += right; y += down; } // over empty slots
  const next = place(here, x, y);
  if (next) { point(here, next); }
}

// What a node is, in one line, and a frame around it.
function point(here, found) {
  const same = found && here.at && found.x === here.at.x && found.y === here.at.y;
  if (same || (!found && !here.at)) { return; }
  here.at = found;
  draw(here);
  hide(here.pill, !found);
  here.canvas.style.cursor = found ? "pointer" : "";
  if (!found) { return; }
  put(here.pill, said(found.one));
  const left = LEFT + found.x * here.column;
  const room = here.canvas.parentElement.clientWidth - here.pill.offsetWidth;
  here.pill.style.left = `${Math.max(0, Math.min(room, left - here.pill.offsetWidth / 2))}px`;
  here.pill.style.top = `${TOP + (found.y + 1) * here.row + 6}px`;
}

function said([name, ...rest]) {
  const [used, silence] = [rest[5], rest[6]];
  if (silence) { return `${name} · silent for ${format.span(silence)}${rest[8] ? " or longer" : ""}`; }
  const counts = STATES.map((state, at) => (rest[at] ? `${rest[at]} ${WORDS[state]}` : "")).filter(Boolean);
  return [name, ...counts, used === null ? "" : `${used} % busy`].filter(Boolean).join(" · ");
}
