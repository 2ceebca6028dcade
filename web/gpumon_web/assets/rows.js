// The rows of a table whose head is in the layout: sorted by a click or a key, changed in place, filtered by a search,
// and quick with thousands: the page only has the rows that the viewer has scrolled to.
// @ts-check
import { attribute, hide, insertBefore, make, put } from "./dom.js";
import { feed } from "./feed.js";
import { epochFolds } from "./folds.js";
import * as format from "./format.js";
import { rowGroups } from "./groups.js";
import { movesByItself, showValue, stateNow } from "./kinds.js";
import { isPrinting } from "./print.js";
import { goTo, redrawPage, setArguments } from "./router.js";

const CHUNK = 60;
const SETTLES = 250; // ms without a letter until the server is asked to search

// `table`: the element with data-rows; `rest` is called when rows are needed that are not here: to show them, or to
// sort by them. Gives what draws it.
export function tableRows(table, rest) {
  const { rows: name, order: first, down: isDown, empty: nothing, loading, noMatch, dense, emptyFrom, few, searched } = table.dataset;
  const places = [...table.querySelectorAll("th[data-col]")];
  let heads = places;
  let shape = ""; // what the columns depend on
  const body = table.tBodies[0];
  const empty = make("p", { class: "empty", hidden: true });
  const more = make("button", { class: "more", type: "button", hidden: true, click: () => { grow(); } });
  const drawn = new Map(); // key -> its line and cells
  const groups = table.dataset.within ? rowGroups(table) : table.dataset.folds ? epochFolds(table) : null;
  let by = first;
  let down = Boolean(isDown);
  let limit = Number(few) || CHUNK;
  let wanted = "";
  let isFolded = false;
  const handle = { button: null }; // the one that saves the rows
  let asks = 0; // the timer of a search by the server
  let saves = null; // who waits for the rows that are not here yet
  table.parentElement.append(empty, more);

  // The order and the words that are sought stand in the address, so that a link shows the same.
  const page = table.closest("[data-page]");
  const main = page.querySelector(`[data-rows="${page.dataset.page}"]`) || page.querySelector("[data-rows]");
  const named = (what) => (main === table ? what : `${what}-${name}`);

  function open(params) {
    const sort = params.get(named("sort")) || "";
    const column = sort.replace(/^-/, "");
    if (groups) { groups.open(params); }
    const known = (groups && groups.isFirst(column)) || places.some((place) => place.dataset.columns || (place.dataset.sort && nameOf(place) === column));
    [by, down] = known && column ? [column, sort.startsWith("-")] : [first, Boolean(isDown)];
    wanted = (params.get(named("q")) || "").trim().toLowerCase();
    mark();
  }

  const nameOf = (head) => `${head.dataset.col} ${head.dataset.part || ""}`.trim();
  const cellOf = (row, { col, part }) => (part === undefined ? row[col] : Object.hasOwn(row[col], part) ? row[col][part] : format.MISSING);

  // A heading by which rows can be sorted becomes a button.
  function sortsBy(head) {
    if (!head.dataset.sort) { return; }
    const button = make("button", { type: "button", class: "sort", title: head.dataset.help || null, text: head.textContent });
    head.dataset.title = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const isSame = inForce() === nameOf(head);
      down = isSame ? !down : Boolean(head.dataset.falls);
      by = nameOf(head);
      if (groups && groups.hasOrders) { goTo({ [named("sort")]: `${down ? "-" : ""}${by}` }); return; } // buttons say the same
      setArguments({ [named("sort")]: by === first && down === Boolean(isDown) ? null : `${down ? "-" : ""}${by}` });
      mark();
      draw(new Map());
      if (lacks()) { rest(); }
    });
  }
  places.forEach(sortsBy);

  const all = () => feed.view.tables.get(name);
  const lacks = (wished = Infinity) => Boolean(all()) && all().rows.size < Math.min(wished, all().total);

  // The columns as they are now: one that stands for several is in the page as those.
  function columns() {
    heads = places.flatMap((place) => {
      if (place.dataset.needs) {
        place.hidden = !feed.value(place.dataset.needs);
        return place.hidden ? [] : [place];
      }
      if (!place.dataset.columns) { return [place]; }
      place.hidden = true;
      while (place.previousElementSibling && place.previousElementSibling.dataset.part !== undefined) { place.previousElementSibling.remove(); }
      return (feed.value(place.dataset.columns) || []).map((part) => {
        const head = place.cloneNode(true);
        head.hidden = false;
        head.dataset.part = part;
        head.textContent = part;
        place.before(head);
        sortsBy(head);
        return head;
      });
    });
    for (const head of heads.filter((one) => one.dataset.titled)) { put(head.firstChild, feed.value(head.dataset.titled) || head.dataset.title); }
    if (!heads.some((head) => nameOf(head) === by) && !(groups && groups.isFirst(by))) { by = first; down = Boolean(isDown); }
    mark();
    for (const [key, made] of drawn) { made.line.remove(); drawn.delete(key); }
  }

  const inForce = () => (groups ? groups.inForce(by) : by);
  function mark() {
    const now = inForce();
    for (const head of heads) {
      if (head.dataset.sort) {
        attribute(head, "aria-sort", now !== nameOf(head) ? "none" : down ? "descending" : "ascending");
      }
    }
  }

  const missing = (value) => value === null || value === undefined || Number.isNaN(value);
  // A value to sort by; a logged number that is none is the largest.
  function plain(value) {
    if (value && value.since !== undefined) { return feed.now - value.since; }
    if (value && value.least !== undefined) { return value.least; }
    return value === format.MISSING ? null : value;
  }

  // What is missing comes last in either direction.
  function sorted(rows, found) {
    const head = (heads.find((one) => nameOf(one) === by) || heads.find((one) => nameOf(one) === first)).dataset;
    const cell = (row) => (head.part === undefined ? row[head.by] : format.odd(cellOf(row, head)) ? Infinity : cellOf(row, head));
    const value = new Map(found.map((key) => [key, plain(cell(rows.get(key)))]));
    return [...found].sort((one, other) => {
      const [a, b] = [value.get(one), value.get(other)];
      if (missing(a) || missing(b)) { return Number(missing(a)) - Number(missing(b)); }
      const order = typeof a === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });
      return down ? -order : order;
    });
  }

  function build() {
    const cells = heads.map((head) => make(head.dataset.head ? "th" : "td", {
      role: head.dataset.head ? "rowheader" : "cell", scope: head.dataset.head ? "row" : null, class: head.className || null,
      "data-label": head.textContent,
    }));
    // A large number, or one with a small unit, has an element of its own.
    const shown = cells.map((cell, at) => {
      const { unit, most } = heads[at].dataset;
      if (most) { cell.dataset.most = most; }
      return unit ? cell.appendChild(make("span", { class: unit === "big" ? "big" : null, "data-unit": unit })) : cell;
    });
    return { line: make("tr", { role: "row" }, ...cells), shown, isNew: true };
  }

  const fitting = ({ order, rows }) => (wanted ? order.filter((key) => (rows.get(key).search || "").includes(wanted)) : order);

  // `changed`: the names of the cells that are new, by row; null: all are.
  function draw(changed) {
    const now = JSON.stringify(places.flatMap(({ dataset }) => [dataset.columns, dataset.most, dataset.titled]).map((one) => one && feed.value(one)))
      + places.map(({ dataset }) => Number(Boolean(dataset.needs && feed.value(dataset.needs)))).join("");
    if (shape !== now) { shape = now; columns(); } else if (groups) { mark(); } // rows may be the first ones that are mine
    const source = all() || { order: [], rows: new Map(), total: 0 };
    const { order, total } = source;
    const plan = groups ? groups.plan(source, wanted, { by, isDown: down, sorted, isUsual: by === first }) : null;
    if (plan && plan.lacks && lacks()) { rest(); }
    isFolded = Boolean(plan);
    const rows = plan ? plan.rows : source.rows;
    const found = plan ? plan.keys : fitting(source);
    const most = isPrinting() ? Infinity : limit;
    const keys = plan ? found.slice(0, most) : found.length ? sorted(rows, found).slice(0, most) : [];
    const keep = new Set(keys);
    for (const [key, made] of drawn) { if (!keep.has(key)) { made.line.remove(); drawn.delete(key); } }
    keys.forEach((key, place) => {
      if (!drawn.has(key)) { drawn.set(key, build()); }
      const made = drawn.get(key);
      fill(made, rows.get(key), changed && !made.isNew ? changed.get(key) || [] : null);
      if (body.children[place] !== made.line) { insertBefore(body, made.line, body.children[place] || null); }
      made.isNew = false;
      if (groups) { groups.mark(made.line, rows.get(key)); }
    });
    if (dense) { table.parentElement.classList.toggle("dense", order.length > Number(dense)); }
    if ((!all() || !feed.server) && loading) { put(empty, loading); }
    else if (searched && (feed.value(searched) || "") !== wanted) { put(empty, "Searching all …"); }
    else if (wanted && lacks()) { put(empty, `${noMatch} ${format.count(total - source.rows.size)} rows are still to come …`); }
    else if ((wanted || plan) && order.length) { put(empty, noMatch); }
    else if (emptyFrom) { showValue(empty, "text", feed.value(emptyFrom)); } else { put(empty, nothing); }
    hide(empty, keys.length > 0);
    hide(table, !keys.length);
    if (handle.button) { hide(handle.button, !keys.length); }
    const count = wanted || plan ? found.length : total;
    const absent = isPrinting() && !plan && lacks() ? total - source.rows.size : 0; // a printer does not wait; rows of a plan stand for all
    more.classList.toggle("absent", absent > 0);
    hide(more, count <= most && !absent);
    if (absent) { put(more, `${format.count(absent)} of ${format.count(total)} rows are missing here: the page had not loaded them.`); }
    if (count > most) { put(more, `Show more: ${format.count(count - limit)} of ${format.count(count)} are hidden`); }
    if (!changed) { sought(); }
    if (saves && !lacks()) { const then = saves; saves = null; then(view()); }
  }

  // All rows that match the search in their order, also of closed groups, and the columns.
  function view() {
    const source = all() || { order: [], rows: new Map() };
    const fits = fitting(source);
    const found = table.dataset.within ? groups.plan(source, wanted, { by, isDown: down, sorted, isUsual: by === first }).leaves : fits.length ? sorted(source.rows, fits) : [];
    return { heads: heads.map((head) => ({ ...head.dataset })), rows: found.map((key) => source.rows.get(key)) };
  }

  // The same for `then`, once all rows have come.
  function whole(then) {
    if (!lacks()) { then(view()); return; }
    saves = then;
    rest();
  }

  function fill({ line, shown }, row, cells) {
    heads.forEach((head, at) => {
      const { col, kind } = head.dataset;
      if (cells && !cells.includes(col) && !movesByItself(kind, row[col])) { return; }
      showValue(shown[at], kind, cellOf(row, heads[at].dataset));
      if (kind === "state") { line.classList.toggle("old", stateNow(row[col]) === "stale"); }
    });
  }

  function grow() {
    limit += limit < 4 * CHUNK ? CHUNK : limit;
    draw(new Map());
    if (!isFolded && lacks(limit)) { rest(); }
  }

  new IntersectionObserver((seen) => {
    if (seen.some((one) => one.isIntersecting) && !few && limit < 4 * CHUNK) { grow(); }
  }).observe(more);
  mark();
  // The way back leads to the page as it was before the first letter.
  function search(text) {
    const begins = !wanted;
    wanted = text.trim().toLowerCase();
    setArguments({ [named("q")]: wanted ? text.trim() : null }, begins && wanted !== "");
    draw(new Map());
    sought();
    if (searched) { clearTimeout(asks); asks = setTimeout(() => redrawPage(true), SETTLES); }
  }
  // What is sought may be among the rows that are not here yet.
  function sought() { if (wanted && lacks()) { rest(); } }
  Object.assign(handle, { name, within: table.dataset.within || table.dataset.folds, draw, open, whole, search, sought: (params) => params.get(named("q")) || "" });
  return handle;
}

// The field that filters a table, in its place in the layout.
export function searchField(place, table) {
  const { words, label } = place.dataset;
  const field = make("input", { type: "search", class: "search", placeholder: words, "aria-label": label, spellcheck: "false" });
  field.addEventListener("input", () => table.search(field.value));
  place.replaceWith(field);
  return { open(params) { const text = table.sought(params); if (field.value.trim() !== text) { field.value = text; } } };
}
