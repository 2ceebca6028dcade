// Rows of a table that belong together, as one row that opens: GPUs of a run on the fleet page, and epochs that are alike.
// @ts-check
import { attribute, make } from "./dom.js";
import { feed } from "./feed.js";
import { redrawPage } from "./router.js";
import { theme } from "./theme.js";
import { currentUser, hasTag, MINE } from "./viewer.js";

const OPEN_TO = 8; // rows of a table up to which its groups are open at first
const FREE = "free";
const opened = new Map(); // by group, whether the viewer opened it

// As in gpumon.css. A phone shows few rows at once.
const isNarrow = window.matchMedia("(max-width: 860px)");

// The order of a table's rows if the address names none: the viewer's own first, or else, if there are many, free ones.
export function usualSort(table) {
  const rows = feed.view.tables.get(table);
  if (rows && [...rows.rows.values()].some((row) => hasTag(row, MINE))) { return MINE; }
  return rows && (rows.order.length > OPEN_TO || isNarrow.matches) ? FREE : "gpu";
}

export const countTagged = (table, tag) => [...(feed.view.tables.get(table)?.rows.values() || [])].filter((row) => hasTag(row, tag)).length;

// Whether a group is open; `usual` if the viewer has not changed that.
export const isOpened = (key, usual) => opened.get(key) ?? usual;
export const setOpened = (key, isOpen) => { opened.set(key, isOpen); };

// The button that opens a group: the whole row.
export function opener(key, ...children) {
  return make("button", {
    class: "row", "aria-expanded": "false",
    click: (event) => { setOpened(key, event.currentTarget.getAttribute("aria-expanded") !== "true"); redrawPage(); },
  }, ...children);
}

function markLine(line, classes, isOpen) {
  for (const [name, is] of Object.entries(classes)) { line.classList.toggle(name, Boolean(is)); }
  const button = line.querySelector("button.row");
  if (button) { attribute(button, "aria-expanded", String(Boolean(isOpen))); }
}

// The groups of a table, in the form that rows.js uses: open(params), plan(), mark(), isFirst(), orderBy().
export function rowGroups(table) {
  const { within, rows: name } = table.dataset;
  let show = ""; // the tag of the rows that are shown
  let isUngrouped = false;
  let isSorted = false; // the address names an order
  const hasOrders = Boolean(table.closest("[data-page]").querySelector("[data-bind=orders]")); // there are buttons for the order

  function open(params) {
    show = params.get("show") || "";
    isUngrouped = params.get("by") === "each";
    isSorted = params.has("sort");
  }

  // The rows in their order: groups, and below each open one its members. `leaves` are all rows without the groups.
  function plan(source, search, { by, sorted }) {
    const groups = (!isUngrouped && feed.view.tables.get(within)) || { order: [], rows: new Map() };
    const rows = new Map([...source.rows, ...groups.order.map((key) => [key, groups.rows.get(key)])]);
    const members = new Set(groups.order.flatMap((key) => groups.rows.get(key).members));
    const fits = (key) => {
      const row = rows.get(key);
      return Boolean(row) && (!show || hasTag(row, show)) && (!search || (row.search || "").includes(search));
    };
    const below = (key) => rows.get(key).members.filter(fits);
    const top = [...groups.order.filter((key) => below(key).length), ...source.order.filter((key) => !members.has(key) && fits(key))];
    const order = orderBy(by);
    let keys = sorted(rows, top);
    if (isFirst(order)) {
      keys = [...keys.filter((key) => hasTag(rows.get(key), order)), ...keys.filter((key) => !hasTag(rows.get(key), order))];
    }
    for (const row of rows.values()) {
      row.isOpen = Boolean(row.members) && isOpened(row.key, source.order.length <= OPEN_TO);
      row.isChild = members.has(row.key);
    }
    return {
      rows,
      keys: keys.flatMap((key) => (rows.get(key).isOpen ? [key, ...below(key)] : [key])),
      leaves: keys.flatMap((key) => (rows.get(key).members ? below(key) : [key])),
    };
  }

  function mark(line, row) {
    const isOwn = hasTag(row, MINE);
    markLine(line, { group: row.members, opened: row.isOpen, child: row.isChild, own: isOwn }, row.isOpen);
    if (isOwn) { line.style.setProperty("--me", `var(--${theme.ofUser(currentUser())})`); }
  }

  // Whether an order puts some rows first, instead of sorting by a column.
  const isFirst = (order) => order === MINE || order === FREE;
  const orderBy = (by) => (isSorted || !hasOrders ? by : usualSort(name));
  return { open, plan, mark, isFirst, orderBy, hasOrders };
}

// Epochs that are alike as one row each, in the same form.
export function epochFolds(table) {
  const { folds: name } = table.dataset;

  // The rows in their order: epochs that stand alone, and folds with their members if they are open. Null if single rows are
  // searched or sorted, or if there are no folds. It `lacks` rows if members of an open fold have not come yet.
  function plan(source, search, { isDown, isUsual }) {
    const folds = feed.view.tables.get(name);
    if (search || !isUsual || !folds || !folds.order.length) { return null; }
    for (const fold of folds.rows.values()) { Object.assign(fold, { isOpen: isOpened(fold.key, false), isFold: true }); }
    const rows = new Map([...source.rows, ...folds.rows]);
    const keys = [];
    const place = (row) => (!row.isFold ? row.ordinal : isDown ? row.last + 0.5 : row.first - 0.5);
    let fold = null;
    let missing = 0; // members of open folds that have not come
    for (const row of [...rows.values()].sort((a, b) => (isDown ? place(b) - place(a) : place(a) - place(b)))) {
      if (row.isFold) { fold = row; } else { row.isChild = Boolean(fold) && fold.first <= row.ordinal && row.ordinal <= fold.last; }
      if (fold && fold.isOpen) { missing += row.isFold ? row.count : -Number(row.isChild); }
      if (!row.isChild || fold.isOpen) { keys.push(row.key); }
    }
    return { rows, keys, lacks: missing > 0 };
  }

  const mark = (line, row) => markLine(line, { fold: row.isFold, opened: row.isOpen, child: row.isChild }, row.isOpen);
  return { open() {}, plan, mark, isFirst: () => false, orderBy: (by) => by, hasOrders: false };
}
