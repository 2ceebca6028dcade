// Rows that belong together as one row that opens, rows that are mine, and those that the address asks for.
// @ts-check
import { attribute, elements, fillOnce, make } from "./dom.js";
import { feed } from "./feed.js";
import * as format from "./format.js";
import { stateNow } from "./kinds.js";
import { goTo, redrawPage } from "./router.js";
import { holderStrip } from "./strip.js";
import { theme } from "./theme.js";

const KEY = "gpumon-me";
const OPEN_TO = 8; // rows of all up to which groups are open at first
const MINE = "mine";

// The user that the viewer claims to be, which never leaves the browser; empty where names are hidden.
const isNameless = () => Boolean(feed.server && feed.server.nameless);
export const currentUser = () => { try { return (!isNameless() && localStorage.getItem(KEY)) || ""; } catch { return ""; } };
export function setMe(name) {
  try { if (name) { localStorage.setItem(KEY, name); } else { localStorage.removeItem(KEY); } } catch { return; }
  redrawPage(false);
}

// People of whom a page has heard though it may show none of them: who was here in a month.
let heard = [];
export function meetUsers(names) {
  const before = heard.length;
  heard = [...new Set([...heard, ...names])];
  return heard.length > before;
}

const isMine = (row) => Boolean(currentUser()) && (row.users || []).includes(currentUser());
const has = (row, tag) => (tag === MINE ? isMine(row) : (row.tags || []).includes(tag));
const turned = new Map(); // group -> whether the viewer opened it

// Of as wide a page as a phone has few rows are seen at once. As in gpumon.css.
const isNarrow = window.matchMedia("(max-width: 860px)");

// The order in which rows come where the address names none: mine first, of many, or on a phone, those that are free.
export const usualSort = (table) => {
  const rows = feed.view.tables.get(table);
  if (rows && [...rows.rows.values()].some(isMine)) { return MINE; }
  return rows && (rows.order.length > OPEN_TO || isNarrow.matches) ? "free" : "gpu";
};

export const countOf = (table, tag) => {
  const rows = feed.view.tables.get(table);
  return rows ? [...rows.rows.values()].filter((row) => has(row, tag)).length : 0;
};

// Whether a row is open; `usual` if the viewer has not changed it.
export const isOpened = (key, usual) => (turned.has(key) ? turned.get(key) : usual);
export const setOpened = (key, isOpen) => { turned.set(key, isOpen); };

export function rowGroups(table) {
  const { within, rows: name } = table.dataset;
  let show = "";
  let each = false;
  let isAsked = false;
  const hasOrders = Boolean(table.closest("[data-page]").querySelector("[data-bind=orders]")); // other tables sort by their columns only

  function open(params) {
    show = params.get("show") || "";
    each = params.get("by") === "each";
    isAsked = params.has("sort");
  }

  const isOpen = (key, count) => isOpened(key, count <= OPEN_TO);

  // The order of rows: groups, and below each open one its members.
  function plan(source, wanted, { by, isDown, sorted }) {
    const groups = (!each && feed.view.tables.get(within)) || { order: [], rows: new Map() };
    const rows = new Map(source.rows);
    const member = new Set();
    for (const key of groups.order) {
      const row = groups.rows.get(key);
      rows.set(key, row);
      for (const one of row.members) { member.add(one); }
    }
    const fits = (key) => {
      const row = rows.get(key);
      return Boolean(row) && (!show || has(row, show)) && (!wanted || (row.search || "").includes(wanted));
    };
    const below = (key) => rows.get(key).members.filter(fits);
    const top = [...groups.order.filter((key) => below(key).length), ...source.order.filter((key) => !member.has(key) && fits(key))];
    const order = inForce(by);
    let keys = top.length ? sorted(rows, top) : [];
    if (isFirst(order)) {
      keys = [...keys.filter((key) => has(rows.get(key), order)), ...keys.filter((key) => !has(rows.get(key), order))];
    }
    const leaves = keys.flatMap((key) => (rows.get(key).members ? below(key) : [key]));
    keys = keys.flatMap((key) => (rows.get(key).members && isOpen(key, source.order.length) ? [key, ...below(key)] : [key]));
    for (const row of rows.values()) { row.isOpen = Boolean(row.members) && isOpen(row.key, source.order.length); row.isChild = member.has(row.key); }
    return { rows, keys, leaves, isDown };
  }

  function mark(line, row) {
    line.classList.toggle("group", Boolean(row.members));
    line.classList.toggle("opened", row.isOpen);
    line.classList.toggle("child", row.isChild);
    line.classList.toggle("own", isMine(row));
    if (isMine(row)) { line.style.setProperty("--me", `var(--${theme.ofUser(currentUser())})`); }
    const button = line.querySelector("button.row");
    if (button) { attribute(button, "aria-expanded", String(row.isOpen)); }
  }

  const isFirst = (order) => order === MINE || order === "free";
  // The order of rows: the column `by`, or the usual one if the address names none.
  const inForce = (by) => (isAsked || !hasOrders ? by : usualSort(name));
  return { open, plan, mark, isFirst, inForce, hasOrders };
}

// The button that opens a group: the whole row.
export function opener(key, ...children) {
  return make("button", {
    type: "button", class: "row", "aria-expanded": "false",
    click: (event) => { setOpened(key, event.currentTarget.getAttribute("aria-expanded") !== "true"); redrawPage(false); },
  }, ...children);
}

// Buttons that narrow or order the rows of a table: each sets an argument of the address.
export function filters(all) {
  const [table] = elements(document, "[data-page]:not([hidden]) [data-within]");
  const asked = new URLSearchParams(location.hash.split("?")[1] || "");
  const usual = (arg) => (arg === "sort" && table ? usualSort(table.dataset.rows) : "");
  return all.filter((one) => one.value !== MINE || currentUser()).map((one) => {
    const count = one.value === MINE && one.count !== undefined ? countOf(table.dataset.rows, MINE) : one.count;
    const isSaid = count !== undefined && count !== null && (!one.value || feed.isFresh()); // how many are free is of now
    const isPressed = (asked.get(one.arg) ?? usual(one.arg)) === one.value;
    return make("button", {
      type: "button", "aria-pressed": String(isPressed), text: isSaid ? `${one.text} ${count}` : one.text,
      click: () => { goTo({ [one.arg]: one.value || null }); },
    });
  });
}

// The viewer's own GPUs; a question if the viewer is unknown.
export function ownGpus({ users: byUser, own: page }) {
  if (isNameless()) { return [make("span", { class: "counted", text: format.MISSING }), make("span", { class: "below", text: "names are hidden here" })]; }
  const me = currentUser();
  const users = [...new Set([...((feed.server && feed.server.users) || []), ...theme.met(), ...heard, ...(me ? [me] : [])])].sort();
  const list = make("select", { class: "pick", "aria-label": "I am" },
    make("option", { value: "", text: me ? "nobody" : "I am …" }),
    ...users.map((name) => make("option", { value: name, text: name, selected: name === me })));
  list.addEventListener("change", () => { setMe(list.value); });
  if (!me) { return [list, make("span", { class: "below", text: users.length ? "marks your GPUs" : "no users yet" })]; }
  const own = byUser[me] || { count: 0, below: "" };
  const address = `${page.startsWith("#/") ? page : "#/"}${encodeURIComponent(me)}`;
  return [make("span", { class: "counted" }, String(own.count), make("small", { text: own.count === 1 ? " GPU" : " GPUs" }), list),
    make("a", { class: "below", href: address, text: (feed.isFresh() ? own.below : own.last) || "my hours" })];
}

// A map of rows: the color says who has it, the height how much of it is used now.
export function gpuTiles(node, name) {
  const table = name && feed.view.tables.get(name);
  if (!table) { fillOnce(node, null, () => []); return; }
  const fresh = feed.isFresh();
  const sign = table.order.map((key) => {
    const { gpu, now, users } = table.rows.get(key);
    const state = stateNow(gpu);
    const use = fresh && format.known(now) ? Math.round(now * 50) / 50 : null;
    const word = state === "free" ? "free" : state === "lost" ? "lost" : use === null ? format.MISSING : format.percent(use);
    return { text: gpu.text, link: gpu.link, title: `GPU ${gpu.text}, ${gpu.title}${users.length ? `, ${users.join(", ")}` : ""}`, state, user: users[0] || "", use, word };
  });
  fillOnce(node, [sign, theme.isDark(), fresh], () => sign.map((one) => {
    const tile = make("a", { class: `tile ${one.state}${one.user && one.user === currentUser() ? " own" : ""}`, href: one.link.startsWith("#/") ? one.link : "#/", title: one.title },
      make("i", { "aria-hidden": "true" }), make("b", { text: one.text }), make("span", { text: one.word }));
    tile.style.setProperty("--c", `var(--${one.user ? theme.ofUser(one.user) : "rest"})`);
    tile.firstChild.style.height = `${(one.use || 0) * 100}%`;
    return tile;
  }));
}

// The last day of one row, or the mean of several.
export function dayStrip(uuids) {
  const strips = uuids.map((uuid) => (feed.value("day") || {})[uuid]).filter(Boolean);
  if (!strips.length) { return []; }
  if (strips.length === 1) { return [holderStrip(strips[0])]; }
  const sums = new Map();
  const unseen = new Map();
  for (const one of strips) {
    for (const [slot, user, held, used] of one.parts) {
      const key = JSON.stringify([slot, user]);
      const sum = sums.get(key) || { slot, user, held: 0, used: 0, known: true };
      sums.set(key, { ...sum, held: sum.held + held, used: sum.used + (used || 0), known: sum.known && used !== null });
    }
    for (const [slot, share, at] of one.unseen) {
      const key = JSON.stringify(at === undefined ? [slot] : [slot, at]); // all of them miss the same outage of the daemon
      unseen.set(key, (unseen.get(key) || 0) + share);
    }
  }
  const of = strips.length;
  const parts = [...sums.values()].sort((a, b) => a.slot - b.slot).map((one) => [one.slot, one.user, one.held / of, one.known ? one.used / of : null]);
  return [holderStrip({ ...strips[0], is_mean: true, parts, unseen: [...unseen].map(([key, share]) => { const [slot, ...at] = JSON.parse(key); return [slot, share / of, ...at]; }), label: strips.map((one) => one.label).join("; ") })];
}
