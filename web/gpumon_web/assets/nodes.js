// Maps of GPUs. On the fleet page, and for a cluster with few nodes, each GPU has a user's color and is as high as it is used.
// A cluster with many nodes is a canvas with a block for each node, whose cells are GPUs by state.
// @ts-check
import { pageLink } from "./address.js";
import { fillOnce, hide, make, put } from "./dom.js";
import { feed } from "./feed.js";
import * as format from "./format.js";
import { stateNow } from "./kinds.js";
import { chartFont } from "./lanes.js";
import { canvasPen } from "./pen.js";
import { person, theme } from "./theme.js";
import { currentUser } from "./viewer.js";

const CELLS_ACROSS = 4;
const LEAST_CELL = 3; // px; if cells would be smaller, a node is one cell
const LARGEST_CELL = 13; // px
const GAP = 3; // px between nodes
const TOP = 18; // px of the racks' names
const LEFT = 22; // px of the slots' numbers
const HEAT = [0.1, 0.18, 0.28, 0.4]; // opacities by use, faint so that free, idle and lost GPUs stand out
const STATES = ["busy", "held_idle", "unknown", "lost", "free"];
const WORDS = { busy: "busy", held_idle: "allocated, idle", unknown: "unknown", lost: "lost", free: "free" };
const COLORS = { free: "ok", held_idle: "warn", lost: "bad" };
const PRIORITY = ["lost", "held_idle", "free", "unknown", "busy"]; // which state a node has that is one cell
const KEY = [["free", "free"], ["held_idle", "allocated, idle"], ["busy", "used"], ["lost", "lost"], ["silent", "silent"], ["unknown", "unknown"]];
const nodeLink = (name) => `#/node/${encodeURIComponent(name)}`;
const userColor = (user) => `var(--${user ? theme.ofUser(user) : "rest"})`;

// The GPUs of a table of the fleet page. Without a name of a table the map is empty.
export function gpuTiles(node, name) {
  const table = name && feed.view.tables.get(name);
  if (!table) { fillOnce(node, null, () => []); return; }
  const isFresh = feed.isFresh();
  const gpus = table.order.map((key) => {
    const { gpu, now, users } = table.rows.get(key);
    const state = stateNow(gpu);
    const use = isFresh && format.known(now) ? Math.round(now * 50) / 50 : null;
    const word = state === "free" || state === "lost" ? state : use === null ? format.MISSING : format.percent(use);
    return { text: gpu.text, link: gpu.link, title: `GPU ${gpu.text}, ${gpu.title}${users.length ? `, ${users.join(", ")}` : ""}`, state, user: users[0] || "", use, word };
  });
  fillOnce(node, [gpus, theme.isDark(), isFresh], () => gpus.map((one) => {
    const tile = make("a", { class: `tile ${one.state}${one.user && one.user === currentUser() ? " own" : ""}`, href: pageLink(one.link), title: one.title },
      make("i", { "aria-hidden": "true" }), make("b", { text: one.text }), make("span", { text: one.word }));
    tile.style.setProperty("--c", userColor(one.user));
    /** @type {HTMLElement} */ (tile.firstChild).style.height = `${(one.use || 0) * 100}%`;
    return tile;
  }));
}

// The nodes of a cluster: {tiles} of few, {racks} of many.
export function nodeMap(node, value) {
  if (!value) { node.replaceChildren(); } else if (value.tiles) { showNodeTiles(node, value.tiles); } else { showRacks(node, value.racks); }
}

function showNodeTiles(node, nodes) {
  fillOnce(node, [nodes, theme.isDark(), feed.isFresh()], () => {
    const users = [...new Set(nodes.flatMap((one) => one.gpus.map(([, , user]) => user)))].filter(Boolean).sort();
    const key = make("p", { class: "key people" }, ...users.map((user) => person(user)));
    return [...(users.length ? [key] : []), make("div", { class: "nodetiles" }, ...nodes.map(nodeTile))];
  });
}

function nodeTile(one) {
  const bars = make("span", { class: "gpubars", "aria-hidden": "true" }, ...one.gpus.map(([number, state, user, used]) => {
    const title = [number ? `GPU ${number}` : "", WORDS[state], user, used === null ? "" : format.percent(used)].filter(Boolean).join(", ");
    const level = make("b");
    level.style.height = state === "busy" ? `${(used || 0) * 100}%` : "0";
    const bar = make("i", { class: `${state} ${user ? theme.mark(user) : ""}`.trim(), title }, level);
    bar.style.setProperty("--c", userColor(user));
    return bar;
  }));
  return make("a", { class: `nodetile ${one.level}`, href: nodeLink(one.name), title: one.name, "aria-label": `${one.name}, ${one.word}` },
    make("span", { class: "nodehead" }, make("b", { text: one.label }), make("span", { text: one.word })), bars);
}

// The canvas, with the node at which the pointer or the keyboard is, is kept with its element.
function showRacks(node, racks) {
  if (!node.gpumonMap?.canvas.isConnected) {
    const canvas = make("canvas", { class: "nodecanvas", tabindex: "0", role: "application", "aria-label": "Nodes by rack: arrow keys move, Enter opens" });
    const pill = make("div", { class: "nodepill", hidden: true, "aria-live": "polite" });
    const key = make("p", { class: "key" }, ...KEY.flatMap(([state, words]) => [make("i", { class: `n-${state}` }), words]));
    node.replaceChildren(key, make("div", { class: "nodeplace" }, canvas, pill));
    const map = node.gpumonMap = { canvas, pill, at: null };
    canvas.addEventListener("pointermove", (event) => moveTo(map, nodeUnder(map, event)));
    canvas.addEventListener("pointerleave", () => moveTo(map, null));
    canvas.addEventListener("click", (event) => { moveTo(map, nodeUnder(map, event)); openNode(map); });
    canvas.addEventListener("keydown", (event) => press(map, event));
    canvas.addEventListener("blur", () => moveTo(map, null));
  }
  node.gpumonMap.racks = racks.map((rack) => ({ ...rack, nodes: rack.nodes.map((one) => one && parseNode(one)) }));
  draw(node.gpumonMap);
}

// A node as node_map.py sends it: its name, the GPUs in each state, percent of use, seconds of silence, GPUs, and whether it
// may have been silent for longer.
function parseNode([name, busy, idle, unknown, lost, free, used, silence, gpus, isLonger]) {
  return { name, counts: [busy, idle, unknown, lost, free], used, silence, gpus, isLonger };
}

function openNode({ at }) {
  if (at) { location.hash = nodeLink(at.node.name); }
}

function draw(map) {
  const { canvas, racks } = map;
  const width = canvas.parentElement.clientWidth;
  if (!width) { return; }
  const slots = Math.max(...racks.map((rack) => rack.nodes.length));
  const column = (width - LEFT) / racks.length;
  const gpus = Math.max(...racks.flatMap((rack) => rack.nodes.map((one) => (one ? one.gpus : 0))), 1);
  const across = Math.min(CELLS_ACROSS, gpus);
  const cell = Math.min(LARGEST_CELL, Math.floor((column - GAP) / across));
  const isOneCell = cell < LEAST_CELL;
  const side = isOneCell ? Math.max(2, Math.min(LARGEST_CELL, Math.floor(column) - 1)) : cell;
  const tall = (isOneCell ? 1 : Math.ceil(gpus / across)) * side;
  const row = tall + (isOneCell ? 1 : GAP);
  const height = TOP + slots * row;
  Object.assign(map, { column, row, slots });
  canvas.style.height = `${height}px`;
  const pen = canvasPen(canvas, width, height);
  drawLabels(pen, racks, slots, column, row);
  const isOld = !feed.isFresh();
  racks.forEach((rack, x) => rack.nodes.forEach((one, y) => {
    if (!one) { return; } // a slot without a node
    const left = Math.round(LEFT + x * column);
    const top = TOP + y * row;
    if (one.silence) { drawSilent(pen, left, top, isOneCell ? side : across * side, tall); return; }
    if (isOneCell) { pen.fillStyle = color(worstState(one), one.used, isOld); pen.fillRect(left, top, side, side); return; }
    STATES.flatMap((state, index) => new Array(one.counts[index]).fill(state)).forEach((state, at) => {
      pen.fillStyle = color(state, one.used, isOld);
      pen.fillRect(left + (at % across) * side, top + Math.floor(at / across) * side, side - 1, side - 1);
    });
  }));
  if (map.at) {
    pen.strokeStyle = theme.color("ink");
    pen.lineWidth = 1.5;
    pen.strokeRect(Math.round(LEFT + map.at.x * column) - 1.5, TOP + map.at.y * row - 1.5, column - 1, row);
  }
}

const worstState = (one) => PRIORITY.find((state) => one.counts[STATES.indexOf(state)] > 0) || "unknown";

function color(state, used, isOld) {
  if (isOld) { return theme.color("mut", state === "busy" ? 0.3 : 0.15); }
  if (state === "busy") { return theme.color("acc", used === null ? HEAT[0] : HEAT[Math.min(3, Math.floor(used / 25))]); }
  return state === "unknown" || (state === "free" && !feed.answered) ? theme.color("mut", 0.35) : theme.color(COLORS[state]);
}

function drawSilent(pen, left, top, width, height) {
  pen.strokeStyle = theme.color("bad");
  pen.lineWidth = 1;
  pen.setLineDash([2, 2]);
  pen.strokeRect(left + 0.5, top + 0.5, width - 2, height - 2);
  pen.setLineDash([]);
}

// Names of racks and numbers of slots, as far as there is room.
function drawLabels(pen, racks, slots, column, row) {
  pen.fillStyle = theme.color("mut");
  pen.font = chartFont(11, 400);
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

function nodeUnder(map, event) {
  const box = map.canvas.getBoundingClientRect();
  return nodeAt(map, Math.floor((event.clientX - box.left - LEFT) / map.column), Math.floor((event.clientY - box.top - TOP) / map.row));
}

function nodeAt({ racks }, x, y) {
  const node = racks[x] && racks[x].nodes[y];
  return node ? { x, y, node } : null;
}

function press(map, event) {
  if (event.key === "Enter") { openNode(map); }
  if (event.key === "Escape") { moveTo(map, null); }
  const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (!step) { return; }
  event.preventDefault();
  let [x, y] = map.at ? [map.at.x + step[0], map.at.y + step[1]] : [0, 0];
  const [right, down] = map.at ? step : [0, 1];
  while (map.racks[x] && y >= 0 && y < map.slots && !nodeAt(map, x, y)) { x += right; y += down; } // over slots without a node
  const next = nodeAt(map, x, y);
  if (next) { moveTo(map, next); }
}

// Frames a node, and describes it in one line below.
function moveTo(map, place) {
  const { canvas, pill, at } = map;
  if (place?.x === at?.x && place?.y === at?.y) { return; }
  map.at = place;
  draw(map);
  hide(pill, !place);
  canvas.style.cursor = place ? "pointer" : "";
  if (!place) { return; }
  put(pill, describe(place.node));
  const room = canvas.parentElement.clientWidth - pill.offsetWidth;
  pill.style.left = `${Math.max(0, Math.min(room, LEFT + place.x * map.column - pill.offsetWidth / 2))}px`;
  pill.style.top = `${TOP + (place.y + 1) * map.row + 6}px`;
}

function describe({ name, counts, used, silence, isLonger }) {
  if (silence) { return `${name} · silent for ${format.span(silence)}${isLonger ? " or longer" : ""}`; }
  const parts = STATES.map((state, at) => (counts[at] ? `${counts[at]} ${WORDS[state]}` : ""));
  return [name, ...parts, used === null ? "" : `${used} % busy`].filter(Boolean).join(" · ");
}
