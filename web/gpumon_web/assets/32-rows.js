// The rows of a table whose head is in the layout: sorted by a click or a key, changed in place, filtered by a search,
// and quick with thousands: only as many are in the page as somebody has scrolled to.
"use strict";
(function (g) {
  const CHUNK = 60;

  // `table`: the element with data-rows; gives what draws it.
  g.rows = function (table) {
    const { rows: name, order: first, down: isDown, empty: nothing, loading, noMatch, dense, emptyFrom } = table.dataset;
    const heads = [...table.querySelectorAll("th[data-col]")];
    const body = table.tBodies[0];
    const empty = g.make("p", { class: "empty", hidden: true });
    const more = g.make("button", { class: "more", type: "button", hidden: true, click: () => { grow(); } });
    const drawn = new Map(); // key -> its line and cells
    let by = first;
    let down = Boolean(isDown);
    let limit = CHUNK;
    let wanted = "";
    table.parentElement.append(empty, more);

    for (const head of heads) {
      const button = head.querySelector("button");
      if (button) {
        button.addEventListener("click", () => {
          down = by === head.dataset.col ? !down : head.classList.contains("num");
          by = head.dataset.col;
          mark();
          draw(new Map());
        });
      }
    }

    function mark() {
      for (const head of heads) {
        if (head.querySelector("button")) {
          g.attribute(head, "aria-sort", by !== head.dataset.col ? "none" : down ? "descending" : "ascending");
        }
      }
    }

    const missing = (value) => value === null || value === undefined || Number.isNaN(value);
    const plain = (value) => (value && value.since !== undefined ? g.feed.now - value.since : value);

    // What is missing comes last in either direction.
    function sorted(all, found) {
      const cell = heads.find((head) => head.dataset.col === by).dataset.by;
      const value = new Map(found.map((key) => [key, plain(all.rows.get(key)[cell])]));
      return [...found].sort((one, other) => {
        const [a, b] = [value.get(one), value.get(other)];
        if (missing(a) || missing(b)) { return missing(a) - missing(b); }
        const order = typeof a === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });
        return down ? -order : order;
      });
    }

    function build() {
      const cells = heads.map((head) => g.make(head.dataset.head ? "th" : "td", {
        role: head.dataset.head ? "rowheader" : "cell", scope: head.dataset.head ? "row" : null, class: head.className || null,
        "data-label": head.textContent,
      }));
      // A large number, or one with a small unit, has an element of its own.
      const shown = cells.map((cell, at) => {
        const { unit } = heads[at].dataset;
        return unit ? cell.appendChild(g.make("span", { class: unit === "big" ? "big" : null, "data-unit": unit })) : cell;
      });
      return { line: g.make("tr", { role: "row" }, ...cells), shown, isNew: true };
    }

    // `changed`: the names of the cells that are new, by row; null: all are.
    function draw(changed) {
      const all = g.feed.view.tables.get(name);
      const order = all ? all.order : [];
      const found = wanted ? order.filter((key) => (all.rows.get(key).search || "").includes(wanted)) : order;
      const keys = found.length ? sorted(all, found).slice(0, limit) : [];
      const keep = new Set(keys);
      for (const [key, made] of drawn) { if (!keep.has(key)) { made.line.remove(); drawn.delete(key); } }
      keys.forEach((key, place) => {
        if (!drawn.has(key)) { drawn.set(key, build()); }
        const made = drawn.get(key);
        fill(made, all.rows.get(key), changed && !made.isNew ? changed.get(key) || [] : null);
        if (body.children[place] !== made.line) { body.insertBefore(made.line, body.children[place] || null); }
        made.isNew = false;
      });
      if (dense) { table.parentElement.classList.toggle("dense", order.length > Number(dense)); }
      if (emptyFrom) { g.show(empty, "text", g.feed.view.values.get(emptyFrom)); }
      else { g.put(empty, !all ? loading : wanted && order.length ? noMatch : nothing); }
      g.hide(empty, keys.length > 0);
      g.hide(table, !keys.length);
      g.hide(more, found.length <= limit);
      if (found.length > limit) { g.put(more, `Show more: ${found.length - limit} of ${found.length} are hidden`); }
    }

    function fill({ line, shown }, row, cells) {
      heads.forEach((head, at) => {
        const { col, kind } = head.dataset;
        if (cells && !cells.includes(col) && !g.moves(kind)) { return; }
        g.show(shown[at], kind, row[col]);
        if (kind === "state") { line.classList.toggle("old", g.stateNow(row[col]) === "stale"); }
      });
    }

    function grow() {
      limit += limit < 4 * CHUNK ? CHUNK : limit;
      draw(new Map());
    }

    new IntersectionObserver((seen) => {
      if (seen.some((one) => one.isIntersecting) && limit < 4 * CHUNK) { grow(); }
    }).observe(more);
    mark();
    return { name, draw, search(text) { wanted = text.trim().toLowerCase(); draw(new Map()); } };
  };

  // The field that filters a table, in its place in the layout.
  g.searchField = function (place, table) {
    const { words, label } = place.dataset;
    const field = g.make("input", { type: "search", class: "search", placeholder: words, "aria-label": label, spellcheck: "false" });
    field.addEventListener("input", () => table.search(field.value));
    place.replaceWith(field);
  };
})(window.gpumon);
