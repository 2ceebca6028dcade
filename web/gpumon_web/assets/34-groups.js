// Rows that belong together as one row that opens, rows that are mine, and those that the address asks for.
"use strict";
(function (g) {
  const KEY = "gpumon-me";
  const OPEN_TO = 8; // rows of all up to which groups are open at first
  const MINE = "mine";

  // Who looks, by their own word: it never leaves the browser. Where all people are called the same, it is nobody.
  const isNameless = () => Boolean(g.feed.server && g.feed.server.nameless);
  g.me = () => { try { return (!isNameless() && localStorage.getItem(KEY)) || ""; } catch { return ""; } };
  g.setMe = function (name) {
    try { if (name) { localStorage.setItem(KEY, name); } else { localStorage.removeItem(KEY); } } catch { return; }
    g.moved(false);
  };

  // People of whom a page has heard though it may show none of them: who was here in a month.
  let heard = [];
  g.hear = function (names) {
    const before = heard.length;
    heard = [...new Set([...heard, ...names])];
    return heard.length > before;
  };

  const isMine = (row) => Boolean(g.me()) && (row.users || []).includes(g.me());
  const has = (row, tag) => (tag === MINE ? isMine(row) : (row.tags || []).includes(tag));
  const turned = new Map(); // group -> whether somebody opened or closed it

  // Of as wide a page as a phone has few rows are seen at once. As in gpumon.css.
  const isNarrow = window.matchMedia("(max-width: 860px)");

  // The order in which rows come where the address names none: mine first, of many, or on a phone, those that are free.
  g.usualSort = (table) => {
    const rows = g.feed.view.tables.get(table);
    if (rows && [...rows.rows.values()].some(isMine)) { return MINE; }
    return rows && (rows.order.length > OPEN_TO || isNarrow.matches) ? "free" : "gpu";
  };

  g.countOf = (table, tag) => {
    const rows = g.feed.view.tables.get(table);
    return rows ? [...rows.rows.values()].filter((row) => has(row, tag)).length : 0;
  };

  // Whether somebody opened a row; `usual` where nobody did.
  g.isOpened = (key, usual) => (turned.has(key) ? turned.get(key) : usual);
  g.turn = (key, isOpen) => { turned.set(key, isOpen); };

  g.groups = function (table) {
    const { within, rows: name } = table.dataset;
    let show = "";
    let each = false;
    let isAsked = false;
    const hasOrders = Boolean(table.closest("[data-page]").querySelector("[data-bind=orders]")); // others have those of their columns alone

    function open(params) {
      show = params.get("show") || "";
      each = params.get("by") === "each";
      isAsked = params.has("sort");
    }

    const isOpen = (key, count) => g.isOpened(key, count <= OPEN_TO);

    // Which rows stand where: those of groups, and below each that is open its members.
    function plan(source, wanted, { by, isDown, sorted }) {
      const groups = (!each && g.feed.view.tables.get(within)) || { order: [], rows: new Map() };
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
      if (isMine(row)) { line.style.setProperty("--me", `var(--${g.theme.ofUser(g.me())})`); }
      const button = line.querySelector("button.row");
      if (button) { g.attribute(button, "aria-expanded", String(row.isOpen)); }
    }

    const isFirst = (order) => order === MINE || order === "free";
    // The order in which rows stand: that of a column, `by`, or what comes first where the address names none.
    const inForce = (by) => (isAsked || !hasOrders ? by : g.usualSort(name));
    return { open, plan, mark, isFirst, inForce, hasOrders };
  };

  // The button that opens a group: the whole row.
  g.opener = function (key, ...children) {
    return g.make("button", {
      type: "button", class: "row", "aria-expanded": "false",
      click: (event) => { g.turn(key, event.currentTarget.getAttribute("aria-expanded") !== "true"); g.moved(false); },
    }, ...children);
  };

  // Buttons that narrow or order the rows of a table: each sets an argument of the address.
  g.filters = function (all) {
    const table = document.querySelector("[data-page]:not([hidden]) [data-within]");
    const asked = new URLSearchParams(location.hash.split("?")[1] || "");
    const usual = (arg) => (arg === "sort" && table ? g.usualSort(table.dataset.rows) : "");
    return all.filter((one) => one.value !== MINE || g.me()).map((one) => {
      const count = one.value === MINE && one.count !== undefined ? g.countOf(table.dataset.rows, MINE) : one.count;
      const isSaid = count !== undefined && count !== null && (!one.value || g.feed.isFresh()); // how many are free is of now
      const isPressed = (asked.get(one.arg) ?? usual(one.arg)) === one.value;
      return g.make("button", {
        type: "button", "aria-pressed": String(isPressed), text: isSaid ? `${one.text} ${count}` : one.text,
        click: () => { g.go({ [one.arg]: one.value || null }); },
      });
    });
  };

  // What is mine of what each user has; before somebody said who they are, the question.
  g.mine = function ({ users: byUser, own: page }) {
    if (isNameless()) { return [g.make("span", { class: "counted", text: g.text.MISSING }), g.make("span", { class: "below", text: "names are hidden here" })]; }
    const me = g.me();
    const users = [...new Set([...((g.feed.server && g.feed.server.users) || []), ...g.theme.met(), ...heard, ...(me ? [me] : [])])].sort();
    const list = g.make("select", { class: "pick", "aria-label": "I am" },
      g.make("option", { value: "", text: me ? "nobody" : "I am …" }),
      ...users.map((name) => g.make("option", { value: name, text: name, selected: name === me })));
    list.addEventListener("change", () => { g.setMe(list.value); });
    if (!me) { return [list, g.make("span", { class: "below", text: users.length ? "marks your GPUs" : "nobody is known here" })]; }
    const own = byUser[me] || { count: 0, below: "" };
    const address = `${page.startsWith("#/") ? page : "#/"}${encodeURIComponent(me)}`;
    return [g.make("span", { class: "counted" }, String(own.count), g.make("small", { text: own.count === 1 ? " GPU" : " GPUs" }), list),
      g.make("a", { class: "below", href: address, text: (g.feed.isFresh() ? own.below : own.last) || "my hours" })];
  };

  // A map of rows: the color says who has it, the height how much of it is used now.
  g.tiles = function (node, name) {
    const table = name && g.feed.view.tables.get(name);
    if (!table) { g.fill(node, null, () => []); return; }
    const fresh = g.feed.isFresh();
    const sign = table.order.map((key) => {
      const { gpu, now, users } = table.rows.get(key);
      const state = g.stateNow(gpu);
      const use = fresh && g.text.known(now) ? Math.round(now * 50) / 50 : null;
      const word = state === "free" ? "free" : state === "lost" ? "lost" : use === null ? g.text.MISSING : g.text.percent(use);
      return { text: gpu.text, link: gpu.link, title: `GPU ${gpu.text}, ${gpu.title}${users.length ? `, ${users.join(", ")}` : ""}`, state, user: users[0] || "", use, word };
    });
    g.fill(node, [sign, g.theme.isDark(), fresh], () => sign.map((one) => {
      const tile = g.make("a", { class: `tile ${one.state}${one.user && one.user === g.me() ? " own" : ""}`, href: one.link.startsWith("#/") ? one.link : "#/", title: one.title },
        g.make("i", { "aria-hidden": "true" }), g.make("b", { text: one.text }), g.make("span", { text: one.word }));
      tile.style.setProperty("--c", `var(--${one.user ? g.theme.ofUser(one.user) : "rest"})`);
      tile.firstChild.style.height = `${(one.use || 0) * 100}%`;
      return tile;
    }));
  };

  // The last day of one row, or the mean of several.
  g.day = function (uuids) {
    const strips = uuids.map((uuid) => (g.feed.value("day") || {})[uuid]).filter(Boolean);
    if (!strips.length) { return []; }
    if (strips.length === 1) { return [g.strip(strips[0])]; }
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
    return [g.strip({ ...strips[0], is_mean: true, parts, unseen: [...unseen].map(([key, share]) => { const [slot, ...at] = JSON.parse(key); return [slot, share / of, ...at]; }), label: strips.map((one) => one.label).join("; ") })];
  };
})(window.gpumon);
