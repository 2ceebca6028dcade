// A page whose layout comes from the server: mounted by React when it is first opened, and filled with values by kind.
"use strict";
(function (g) {
  const EVERY = 10; // s between questions for what the ledger keeps
  const SOON = 3; // s after one that got no answer

  // The layout of the page that is opened first is asked for before Dash is up, by its name in the address.
  let early = null;
  g.fetchLayout = function (name) {
    early = askLayout(name).catch(() => null);
  };

  const askLayout = (name) => fetch(`api/layout?page=${encodeURIComponent(name)}`, { credentials: "same-origin" })
    .then((answer) => { if (!answer.ok) { throw new Error(String(answer.status)); } return answer.json(); });

  async function layoutOf(name) {
    const found = early && await early;
    early = null;
    return found && found.page === name ? found.layout : (await askLayout(name)).layout;
  }

  // `ready` is called once the layout stands in `section`.
  function mount(section, ready) {
    const watch = new MutationObserver(() => { if (section.firstChild) { watch.disconnect(); ready(); } });
    watch.observe(section, { childList: true });
    layoutOf(section.dataset.page)
      .then((layout) => { window.dash_clientside.set_props(section.id, { children: layout }); })
      .catch(() => { watch.disconnect(); setTimeout(() => mount(section, ready), SOON * 1000); });
  }

  // A page in the form that the router knows: show(), about() and tick().
  g.view = function (section) {
    const ask = g.asker();
    const isKept = Boolean(section.dataset.kept);
    let bound = null; // name -> elements, once the layout is there
    let tables = [];
    let figures = [];
    let params = new URLSearchParams();
    let asked = 0;
    let outline = "";
    let wasFresh = true;
    const page = { title: section.dataset.title, alone: true, build() { mount(section, ready); }, show, about, tick };

    function ready() {
      bound = new Map();
      for (const node of section.querySelectorAll("[data-bind]")) {
        if (!bound.has(node.dataset.bind)) { bound.set(node.dataset.bind, []); }
        bound.get(node.dataset.bind).push(node);
      }
      tables = [...section.querySelectorAll("[data-rows]")].map(g.rows);
      for (const place of section.querySelectorAll("[data-search]")) {
        g.searchField(place, tables.find((table) => table.name === place.dataset.search));
      }
      figures = [...section.querySelectorAll("[data-figure]")].map(g.figure);
      for (const figure of figures) { figure.open(params); }
      about();
      if (!section.hidden && g.feed.state !== "connecting") { load(); }
    }

    function show(given) {
      asked = 0;
      params = given;
      if (!bound) { return; }
      for (const figure of figures) { figure.open(params); }
      about();
      load();
    }

    // Everything anew.
    function about() {
      if (!bound) { return; }
      wasFresh = g.feed.isFresh();
      for (const [name, nodes] of bound) { for (const node of nodes) { value(node, name); } }
      for (const table of tables) { table.draw(null); }
      places();
      for (const figure of figures) { figure.about(); }
    }

    // What is there only while a value says so, or dimmed then.
    function places() {
      const { values } = g.feed.view;
      const has = (name) => { const one = values.get(name); return Boolean(one) && one.length !== 0; };
      for (const node of section.querySelectorAll("[data-show]")) { g.hide(node, values.size > 0 && !has(node.dataset.show)); }
      for (const node of section.querySelectorAll("[data-dim]")) { node.classList.toggle("old", has(node.dataset.dim)); }
    }

    function value(node, name) {
      const { values } = g.feed.view;
      if (values.has(name)) { g.show(node, node.dataset.kind, values.get(name)); }
      if (node.tagName === "P") { g.hide(node, !node.textContent); } // a paragraph of nothing would be a gap
    }

    // What is new, and what moves by itself; null: only the latter.
    function tick(news) {
      if (!bound) { return; }
      if (wasFresh !== g.feed.isFresh()) { about(); }
      for (const name of news ? news.values : []) { for (const node of bound.get(name) || []) { value(node, name); } }
      for (const table of tables) { table.draw((news && news.tables.get(table.name)) || new Map()); }
      if (news && news.values.length) { places(); }
      for (const figure of figures) { figure.tick(news); }
      load();
    }

    // What comes from the ledger: every ten seconds, and at once when a run began, ended, or is in another epoch.
    function load() {
      if (!isKept || g.feed.state === "connecting") { return; }
      const runs = JSON.stringify((g.feed.server || {}).runs || []);
      if (runs !== outline) { outline = runs; asked = 0; }
      if (performance.now() < asked) { return; }
      asked = performance.now() + EVERY * 1000;
      const view = g.feed.view;
      ask(`api/kept?page=${encodeURIComponent(section.dataset.page)}`, (found, took) => {
        asked = performance.now() + (found ? Math.max(EVERY, took * 20) : SOON) * 1000;
        if (!found || view !== g.feed.view) { return; }
        g.theme.meet(found.users);
        const news = g.feed.merge(found);
        for (const name of news.values) { for (const node of bound.get(name) || []) { value(node, name); } }
        for (const table of tables) { table.draw(news.tables.get(table.name) || new Map()); }
      });
    }
    return page;
  };
})(window.gpumon);
