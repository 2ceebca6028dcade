// The rows of a table whose headings are in the layout: sorted by a heading, filtered by a search, and updated in place. Of
// thousands of rows, the document only has those to which the viewer has scrolled.
// @ts-check
import { setArguments } from "./address.js";
import { attribute, elements, hide, insertBefore, make, put } from "./dom.js";
import { feed } from "./feed.js";
import * as format from "./format.js";
import { epochFolds, rowGroups } from "./groups.js";
import { movesByItself, showValue, stateNow } from "./kinds.js";
import { isPrinting } from "./print.js";
import { goTo, redrawPage } from "./router.js";

const CHUNK = 60; // rows that are added at once
const NONE = { order: [], rows: new Map(), total: 0 };
const SETTLES = 250; // ms after the last letter until the server is asked to search

// `table`: the element with data-rows; `requestRest` is called when rows are needed that have not come.
export function tableRows(table, requestRest) {
  const { rows: name, order: first, down: isFirstDown, empty: nothing, loading, noMatch, dense, emptyFrom, few, searched } = table.dataset;
  /** @type {any[]} */
  const templates = elements(table, "th[data-col]"); // the headings of the layout; one may stand for several columns
  const body = table.tBodies[0];
  const empty = make("p", { class: "empty", hidden: true });
  const more = make("button", { class: "more", hidden: true, click: () => { grow(); } });
  const lines = new Map(); // by key, the line in the document and its cells
  const groups = table.dataset.within ? rowGroups(table) : table.dataset.folds ? epochFolds(table) : null;
  let heads = templates;
  let shape = ""; // the values on which the columns depend
  let by = first;
  let isDown = Boolean(isFirstDown);
  let limit = Number(few) || CHUNK;
  let search = "";
  let hasPlan = false; // the groups decide which rows are shown
  let searchTimer = 0;
  let onComplete = null; // called once all rows have come
  table.parentElement.append(empty, more);

  // Order and search are arguments of the address. Those of the page's main table have plain names.
  const page = table.closest("[data-page]");
  const main = page.querySelector(`[data-rows="${page.dataset.page}"]`) || page.querySelector("[data-rows]");
  const argument = (what) => (main === table ? what : `${what}-${name}`);

  function open(params) {
    const sort = params.get(argument("sort")) || "";
    const column = sort.replace(/^-/, "");
    if (groups) { groups.open(params); }
    const isKnown = (groups && groups.isFirst(column)) || templates.some((head) => head.dataset.columns || (head.dataset.sort && nameOf(head) === column));
    [by, isDown] = isKnown && column ? [column, sort.startsWith("-")] : [first, Boolean(isFirstDown)];
    search = (params.get(argument("q")) || "").trim().toLowerCase();
    markOrder();
  }

  const nameOf = (head) => `${head.dataset.col} ${head.dataset.part || ""}`.trim();
  const cellOf = (row, { col, part }) => (part === undefined ? row[col] : Object.hasOwn(row[col], part) ? row[col][part] : format.MISSING);

  // A heading by which rows can be sorted becomes a button.
  function makeSortable(head) {
    if (!head.dataset.sort) { return; }
    const button = make("button", { class: "sort", title: head.dataset.help || null, text: head.textContent, click: () => sortBy(head) });
    head.dataset.title = head.textContent;
    head.replaceChildren(button);
  }

  function sortBy(head) {
    isDown = orderBy() === nameOf(head) ? !isDown : Boolean(head.dataset.falls);
    by = nameOf(head);
    const order = `${isDown ? "-" : ""}${by}`;
    if (groups && groups.hasOrders) { goTo({ [argument("sort")]: order }); return; } // buttons of the page show the order too
    setArguments({ [argument("sort")]: by === first && isDown === Boolean(isFirstDown) ? null : order });
    markOrder();
    draw(new Map());
    if (lacksRows()) { requestRest(); }
  }
  templates.forEach(makeSortable);

  const source = () => feed.view.tables.get(name) || NONE;
  const lacksRows = (wanted = Infinity) => source().rows.size < Math.min(wanted, source().total);

  // Makes the headings of the current columns, and drops all lines.
  function makeColumns() {
    heads = templates.flatMap((head) => {
      if (head.dataset.needs) {
        head.hidden = !feed.value(head.dataset.needs);
        return head.hidden ? [] : [head];
      }
      if (!head.dataset.columns) { return [head]; }
      head.hidden = true;
      while (head.previousElementSibling?.dataset.part !== undefined) { head.previousElementSibling.remove(); }
      return (feed.value(head.dataset.columns) || []).map((part) => {
        const copy = head.cloneNode(true);
        copy.hidden = false;
        copy.dataset.part = part;
        copy.textContent = part;
        head.before(copy);
        makeSortable(copy);
        return copy;
      });
    });
    for (const head of heads.filter((one) => one.dataset.titled)) { put(head.firstChild, feed.value(head.dataset.titled) || head.dataset.title); }
    if (!heads.some((head) => nameOf(head) === by) && !(groups && groups.isFirst(by))) { by = first; isDown = Boolean(isFirstDown); }
    markOrder();
    keepLines(new Set());
  }

  const orderBy = () => (groups ? groups.orderBy(by) : by);
  function markOrder() {
    for (const head of heads.filter((one) => one.dataset.sort)) {
      attribute(head, "aria-sort", orderBy() !== nameOf(head) ? "none" : isDown ? "descending" : "ascending");
    }
  }

  const isMissing = (value) => value === null || value === undefined || Number.isNaN(value);

  // The value by which a row is sorted. NaN and infinities that were logged are the largest numbers.
  function sortValue(row, head) {
    const value = head.part === undefined ? row[head.by] : cellOf(row, head);
    if (head.part !== undefined && format.odd(value)) { return Infinity; }
    if (value && value.since !== undefined) { return feed.now - value.since; }
    if (value && value.least !== undefined) { return value.least; }
    return value === format.MISSING ? null : value;
  }

  // Keys sorted by the current column; missing values come last in either direction.
  function sorted(rows, keys) {
    if (!keys.length) { return []; }
    const head = (heads.find((one) => nameOf(one) === by) || heads.find((one) => nameOf(one) === first)).dataset;
    const value = new Map(keys.map((key) => [key, sortValue(rows.get(key), head)]));
    return [...keys].sort((one, other) => {
      const [a, b] = [value.get(one), value.get(other)];
      if (isMissing(a) || isMissing(b)) { return Number(isMissing(a)) - Number(isMissing(b)); }
      const order = typeof a === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });
      return isDown ? -order : order;
    });
  }

  function makeLine() {
    const cells = heads.map((head) => make(head.dataset.head ? "th" : "td", {
      role: head.dataset.head ? "rowheader" : "cell", scope: head.dataset.head ? "row" : null, class: head.className || null,
      "data-label": head.textContent,
    }));
    // The element of each value: a part of its cell if its number is large or its unit is small.
    const places = cells.map((cell, at) => {
      const { unit, most } = heads[at].dataset;
      if (most) { cell.dataset.most = most; }
      return unit ? cell.appendChild(make("span", { class: unit === "big" ? "big" : null, "data-unit": unit })) : cell;
    });
    return { line: make("tr", { role: "row" }, ...cells), places };
  }

  // Removes the lines of all other rows.
  function keepLines(keys) {
    for (const [key, { line }] of lines) { if (!keys.has(key)) { line.remove(); lines.delete(key); } }
  }

  // The rows that match the search, in their order.
  function ungrouped() {
    const { order, rows } = source();
    return { rows, keys: sorted(rows, search ? order.filter((key) => (rows.get(key).search || "").includes(search)) : order) };
  }

  const grouped = () => groups && groups.plan(source(), search, { by, isDown, sorted, isUsual: by === first });

  // Draws the rows. `changed`: by row, the names of cells that changed; null: all may have changed.
  function draw(changed) {
    const values = templates.map(({ dataset }) => [dataset.columns, dataset.most, dataset.titled].map((one) => one && feed.value(one)));
    const now = JSON.stringify([values, templates.map(({ dataset }) => Boolean(dataset.needs && feed.value(dataset.needs)))]);
    if (shape !== now) { shape = now; makeColumns(); } else if (groups) { markOrder(); } // the usual order depends on the rows
    const plan = grouped();
    hasPlan = Boolean(plan);
    if (plan && plan.lacks && lacksRows()) { requestRest(); }
    const { rows, keys: all } = plan || ungrouped();
    const most = isPrinting() ? Infinity : limit;
    const keys = all.slice(0, most);
    keepLines(new Set(keys));
    keys.forEach((key, place) => {
      const isNew = !lines.has(key);
      if (isNew) { lines.set(key, makeLine()); }
      const made = lines.get(key);
      fill(made, rows.get(key), changed && !isNew ? changed.get(key) || [] : null);
      if (body.children[place] !== made.line) { insertBefore(body, made.line, body.children[place] || null); }
      if (groups) { groups.mark(made.line, rows.get(key)); }
    });
    showEmpty(keys.length);
    showMore(all.length, most);
    if (!changed) { requestMatches(); }
    if (onComplete && !lacksRows()) { const then = onComplete; onComplete = null; then(view()); }
  }

  function showEmpty(count) {
    const { order, total, rows } = source();
    if (dense) { table.parentElement.classList.toggle("dense", order.length > Number(dense)); }
    if ((source() === NONE || !feed.server) && loading) { put(empty, loading); }
    else if (searched && (feed.value(searched) || "") !== search) { put(empty, "Searching all …"); }
    else if (search && lacksRows()) { put(empty, `${noMatch} ${format.count(total - rows.size)} rows are still to come …`); }
    else if ((search || hasPlan) && order.length) { put(empty, noMatch); }
    else if (emptyFrom) { showValue(empty, "text", feed.value(emptyFrom)); }
    else { put(empty, nothing); }
    hide(empty, count > 0);
    hide(table, !count);
    if (handle.button) { hide(handle.button, !count); }
  }

  // The button below the rows says how many are hidden; on paper, how many have not come.
  function showMore(found, most) {
    const { rows, total } = source();
    const count = search || hasPlan ? found : total;
    const absent = isPrinting() && !hasPlan && lacksRows() ? total - rows.size : 0;
    more.classList.toggle("absent", absent > 0);
    hide(more, count <= most && !absent);
    if (absent) { put(more, `${format.count(absent)} of ${format.count(total)} rows are missing here: the page had not loaded them.`); }
    if (count > most) { put(more, `Show more: ${format.count(count - limit)} of ${format.count(count)} are hidden`); }
  }

  // All rows that match the search, in their order, without groups and with members of closed groups; and their columns.
  function view() {
    const keys = table.dataset.within ? grouped().leaves : ungrouped().keys;
    return { heads: heads.map((head) => ({ ...head.dataset })), rows: keys.map((key) => source().rows.get(key)) };
  }

  // Calls a function with the view once all rows have come.
  function whole(then) {
    if (!lacksRows()) { then(view()); return; }
    onComplete = then;
    requestRest();
  }

  function fill({ line, places }, row, cells) {
    heads.forEach((head, at) => {
      const { col, kind } = head.dataset;
      if (cells && !cells.includes(col) && !movesByItself(kind, row[col])) { return; }
      showValue(places[at], kind, cellOf(row, head.dataset));
      if (kind === "state") { line.classList.toggle("old", stateNow(row[col]) === "stale"); }
    });
  }

  function grow() {
    limit += limit < 4 * CHUNK ? CHUNK : limit;
    draw(new Map());
    if (!hasPlan && lacksRows(limit)) { requestRest(); }
  }

  new IntersectionObserver((seen) => {
    if (seen.some((one) => one.isIntersecting) && !few && limit < 4 * CHUNK) { grow(); }
  }).observe(more);
  markOrder();

  // Searches for words. Only the first letter is a step of the browser's history: back leads to the page without a search.
  function searchFor(text) {
    const begins = !search;
    search = text.trim().toLowerCase();
    setArguments({ [argument("q")]: search ? text.trim() : null }, begins && search !== "");
    draw(new Map());
    requestMatches();
    if (searched) { clearTimeout(searchTimer); searchTimer = setTimeout(() => redrawPage(true), SETTLES); }
  }
  // Rows that match may be among those that have not come.
  function requestMatches() { if (search && lacksRows()) { requestRest(); } }

  // `button` is set by csv.js.
  const handle = { name, within: table.dataset.within || table.dataset.folds, draw, open, whole, search: searchFor, searchOf: (params) => params.get(argument("q")) || "", button: null };
  return handle;
}

// Puts the field that filters a table at its place in the layout.
export function searchField(place, table) {
  const { words, label } = place.dataset;
  const field = /** @type {HTMLInputElement} */ (make("input", { type: "search", class: "search", placeholder: words, "aria-label": label, spellcheck: "false" }));
  field.addEventListener("input", () => table.search(field.value));
  place.replaceWith(field);
  return { open(params) { const text = table.searchOf(params); if (field.value.trim() !== text) { field.value = text; } } };
}
