// Which page is shown, by what stands behind # in the address; only that page draws.
"use strict";
(function (g) {
  const TABS = { fleet: "fleet", gpu: "gpu", runs: "runs", run: "runs" };
  const ALL = [...Object.keys(TABS), "none"];
  const built = new Set();
  let current = "";

  function place() {
    const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
    const [first, id] = path.split("/");
    const name = first === "run" && !id ? "runs" : first;
    const params = new URLSearchParams(query || "");
    if (id) {
      try { params.set("id", decodeURIComponent(id)); } catch (error) { params.set("id", id); }
    }
    const is = Object.hasOwn(TABS, name);
    return { name: is ? name : "fleet", unknown: is || !name ? "" : name, params };
  }

  // A machine without a GPU has one page for what would be shown of GPUs.
  const resolved = (name) => (g.feed.about && !g.feed.about.gpus.length && TABS[name] !== "runs" ? "none" : name);

  // Whoever opens a machine of one GPU wants to see that one.
  function land() {
    const about = g.feed.about;
    if (about.gpus.length === 1 && !location.hash.replace(/^#\/?/, "")) {
      history.replaceState(null, "", `#/gpu/${about.gpus[0].index}`);
      return true;
    }
    return resolved(place().name) !== current;
  }

  function route() {
    const { name: asked, unknown, params } = place();
    const name = resolved(asked);
    const page = g.pages[name];
    const section = document.getElementById(`page-${name}`);
    if (!built.has(name)) { built.add(name); page.build(section); }
    for (const other of ALL) { document.getElementById(`page-${other}`).hidden = other !== name; }
    for (const tab of new Set(Object.values(TABS))) {
      const link = document.getElementById(`tab-${tab}`);
      if (TABS[asked] === tab) { link.setAttribute("aria-current", "page"); } else { link.removeAttribute("aria-current"); }
    }
    const moved = current && current !== name;
    current = name;
    document.title = `${page.title} · gpumon`;
    const notice = document.getElementById("notice");
    g.hide(notice, !unknown);
    g.put(notice, unknown ? `There is no page "${unknown.slice(0, 40)}". This is the fleet.` : "");
    if (page.show) { page.show(params); }
    if (g.feed.about && page.about) { page.about(); }
    if (moved) { window.scrollTo(0, 0); document.getElementById("main").focus({ preventScroll: true }); }
  }

  function heard(news) {
    if (g.feed.about && land()) { route(); }
    g.status();
    const page = g.pages[current];
    if (!g.feed.about) { if (page.alone) { page.tick(null); } return; }
    if (news.delta === null) { page.tick(null); return; }
    if (news.reset || news.about) { page.about(); }
    if (!(news.reset && news.about)) { page.tick(news.reset ? null : news.delta); }
  }

  g.shown = () => current;

  function start() {
    g.theme.start();
    // A skip link that changed the address would lead to another page.
    document.getElementById("skip").addEventListener("click", (click) => {
      click.preventDefault();
      document.getElementById("main").focus();
    });
    g.theme.on(() => { const page = g.pages[current]; if (g.feed.about && page.tick) { page.tick(null); } });
    window.addEventListener("hashchange", route);
    window.addEventListener("resize", () => { if (g.feed.about && g.pages[current].tick) { g.pages[current].tick(null); } });
    g.feed.on(heard);
    // Time goes on for what is old, although nothing comes.
    setInterval(() => { if (g.feed.about && !g.feed.isFresh() && !document.hidden) { g.pages[current].tick(null); } }, 1000);
    g.status();
    route();
    g.feed.ask();
  }

  // Dash puts the page up a moment after our scripts have come.
  function whenThere() {
    if (document.getElementById("main")) { start(); return; }
    const watch = new MutationObserver(() => {
      if (document.getElementById("main")) { watch.disconnect(); start(); }
    });
    watch.observe(document.documentElement, { childList: true, subtree: true });
  }
  whenThere();
})(window.gpumon);
