// Tables that sort by a click or a key, change in place, and stay quick with thousands of rows:
// only as many rows are in the page as somebody has scrolled to.
"use strict";
(function (g) {
  const CHUNK = 60;

  // columns: {key, title, help, number, value(row) to sort by, text(row) or draw(row) -> elements, sign(row), head}
  // options.rest() is called when somebody wants rows that are not here: to see them, or to sort by them.
  g.table = function (caption, columns, options) {
    const set = { order: columns[0].key, down: false, empty: "", className: "", rest: () => {}, ...options };
    const body = g.make("tbody", { role: "rowgroup" });
    const headRow = g.make("tr", { role: "row" });
    const table = g.make("table", { class: `stack ${set.className}`, role: "table" },
      g.make("caption", { class: "sr", text: caption }),
      g.make("thead", { role: "rowgroup" }, headRow), body);
    const empty = g.make("p", { class: "empty", text: set.empty, hidden: true });
    const more = g.make("button", { class: "more", type: "button", hidden: true, click: () => { grow(); } });
    const node = g.make("div", { class: "tablebox" }, table, empty, more);
    const drawn = new Map();
    let order = set.order;
    let down = set.down;
    let rows = [];
    let total = 0; // rows that there are, here or not
    let limit = CHUNK;
    const heads = columns.map(head);
    headRow.append(...heads);
    mark();

    function head(column) {
      const cell = g.make("th", {
        scope: "col", role: "columnheader", class: [column.number && "num", column.className].filter(Boolean).join(" "),
      });
      if (!column.value) { cell.append(column.title); return cell; }
      const button = g.make("button", { type: "button", class: "sort", title: column.help, text: column.title });
      button.addEventListener("click", () => {
        down = order === column.key ? !down : Boolean(column.number);
        order = column.key;
        mark();
        draw();
        if (rows.length < total) { set.rest(); }
      });
      cell.append(button);
      return cell;
    }

    function mark() {
      columns.forEach((column, place) => {
        if (column.value) {
          heads[place].setAttribute("aria-sort", order === column.key ? (down ? "descending" : "ascending") : "none");
        }
      });
    }

    // What is missing comes last in either direction.
    function sorted() {
      const column = columns.find((one) => one.key === order);
      if (!column || !column.value) { return rows; }
      const missing = (value) => value === null || value === undefined || Number.isNaN(value);
      return rows.map((row) => [column.value(row), row]).sort(([a], [b]) => {
        if (missing(a) || missing(b)) { return missing(a) - missing(b); }
        const found = typeof a === "string" ? a.localeCompare(String(b), undefined, { numeric: true }) : a - b;
        return down ? -found : found;
      }).map(([, row]) => row);
    }

    function build() {
      const line = g.make("tr", { role: "row" });
      const cells = columns.map((column) => {
        const cell = g.make(column.head ? "th" : "td", {
          role: column.head ? "rowheader" : "cell", scope: column.head ? "row" : undefined,
          class: [column.number && "num", column.className].filter(Boolean).join(" "), "data-label": column.title,
        });
        line.append(cell);
        return cell;
      });
      return { line, cells };
    }

    function draw() {
      const shown = sorted().slice(0, limit);
      const keep = new Set(shown.map((row) => row.key));
      for (const [key, made] of drawn) { if (!keep.has(key)) { made.line.remove(); drawn.delete(key); } }
      shown.forEach((row, place) => {
        if (!drawn.has(row.key)) { drawn.set(row.key, build()); }
        const made = drawn.get(row.key);
        columns.forEach((column, at) => {
          if (column.text) { g.put(made.cells[at], column.text(row)); }
          else { g.fill(made.cells[at], column.sign(row), () => column.draw(row)); }
        });
        if (set.each) { set.each(row, made.line); }
        if (body.children[place] !== made.line) { body.insertBefore(made.line, body.children[place] || null); }
      });
      g.hide(empty, rows.length > 0);
      g.hide(table, rows.length === 0);
      g.hide(more, total <= limit);
      if (total > limit) { g.put(more, `Show more: ${total - limit} of ${total} are hidden`); }
    }

    function grow() {
      limit += limit < 4 * CHUNK ? CHUNK : limit;
      draw();
      if (rows.length < Math.min(limit, total)) { set.rest(); }
    }

    new IntersectionObserver((seen) => {
      if (seen.some((one) => one.isIntersecting) && limit < 4 * CHUNK) { grow(); }
    }).observe(more);

    return {
      node,
      show(found, all) { rows = found; total = all || found.length; draw(); },
      say(text) { g.put(empty, text); },
    };
  };

  g.card = function (title, ...children) {
    return g.make("section", { class: "card" }, g.make("div", { class: "cardhead" }, g.make("h2", { text: title })),
      ...children);
  };

  // A headline number: what it is, its value, and one line below; gives what sets them.
  g.headline = function (title, className) {
    const value = g.make("span", { class: "value" });
    const more = g.make("span", { class: "below" });
    const extra = g.make("span", { class: "extra" });
    const node = g.make("div", { class: `headline ${className || ""}`, role: "group", "aria-label": title },
      g.make("span", { class: "what", text: title }), value, extra, more);
    return { node, value, more, extra };
  };
})(window.gpumon);
