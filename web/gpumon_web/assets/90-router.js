// Which page is shown, by what stands behind # in the address; only that page draws.
"use strict";
(function (g) {
  let sections = [];
  let current = null;

  function place() {
    const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
    const [name, id] = path.split("/");
    const params = new URLSearchParams(query || "");
    if (id) {
      try { params.set("id", decodeURIComponent(id)); } catch { params.set("id", id); }
    }
    return { name, params };
  }

  g.addressArguments = () => place().params;

  // What values are of, and no figure: a change of the other arguments is none of the page.
  const subject = (params, name) => {
    const section = byName(name);
    const names = section ? section.dataset.subject.split(" ") : ["id"];
    return Object.fromEntries(names.filter((one) => params.get(one)).map((one) => [one, params.get(one)]));
  };

  // Other arguments of the address, those that are null without: the browser's history keeps pages, and not each turn of
  // the wheel. `isStep`: the way back leads to the address as it was.
  g.setArguments = function (changes, isStep) {
    const [path, query] = (location.hash || "#/").split("?");
    const all = new URLSearchParams(query || "");
    for (const [name, value] of Object.entries(changes)) {
      if (value === null) { all.delete(name); } else { all.set(name, value); }
    }
    const text = String(all);
    const address = text ? `${path}?${text}` : path;
    if (isStep && address !== location.hash) { history.pushState(null, "", address); } else { history.replaceState(null, "", address); }
  };

  // The same page with other arguments, which somebody chose.
  g.go = function (changes) {
    g.setArguments(changes, true);
    route();
  };

  // An address without an id is of what was seen last on this page, and says so: as a link it leads there too.
  const last = new Map();
  function remember(name, params) {
    if (params.get("id")) { last.set(name, params.get("id")); return; }
    if (!last.has(name) || byName(name).dataset.needsId) { return; }
    params.set("id", last.get(name));
    const [, query] = location.hash.split("?");
    history.replaceState(null, "", `#/${name}/${encodeURIComponent(last.get(name))}${query ? `?${query}` : ""}`);
  }

  // The arguments of the address that hold for others like the one that is shown.
  g.keptArguments = () => {
    const length = place().params.get("window");
    return length ? `?window=${encodeURIComponent(length)}` : "";
  };
  g.moved = (anew) => {
    if (current && anew) { page(current).show(place().params); } else if (current) { page(current).about(); }
  };

  const byName = (name) => sections.find((section) => section.dataset.page === name);

  // The section of an address: of an unknown page the first one, of a page that needs an id and has none its tab's, and
  // on a machine without a GPU the one that takes the place.
  function resolved({ name, params }) {
    let asked = byName(name) || sections[0];
    if (asked.dataset.needsId && !params.has("id")) { asked = byName(asked.dataset.tabOf); }
    const instead = g.feed.server && !g.feed.server.has_gpus && asked.dataset.withoutGpus;
    return { asked, section: instead ? byName(instead) : asked };
  }

  // A machine of one GPU has no list of them: its first page has no tab, and the mark leads to that GPU.
  function single() {
    const [{ dataset: { page: first } }] = sections;
    const { home } = g.feed.server;
    g.hide(document.querySelector(`[data-tab="${first}"]`), Boolean(home) && current !== sections[0]);
    g.attribute(document.querySelector(".brand"), "href", home || `#/${first}`);
  }

  // Who opens a machine of one GPU wants to see that one.
  function land() {
    if (g.feed.server.home && !location.hash.replace(/^#\/?/, "")) {
      history.replaceState(null, "", g.feed.server.home);
      return true;
    }
    return resolved(place()).section !== current;
  }

  function page(section) {
    g.pages = g.pages || {};
    const { page: name } = section.dataset;
    if (!g.pages[name]) { g.pages[name] = section.dataset.dash ? g.dashPage(section) : g.view(section); }
    return g.pages[name];
  }

  function route() {
    g.position.open(place().params);
    const { name, params } = place();
    if (byName(name)) { remember(name, params); }
    const { asked, section } = resolved({ name, params });
    for (const other of sections) { other.hidden = other !== section; }
    const shown = page(section);
    for (const tab of document.querySelectorAll("[data-tab]")) {
      if (tab.dataset.tab === asked.dataset.tabOf) { tab.setAttribute("aria-current", "page"); } else { tab.removeAttribute("aria-current"); }
    }
    const moved = current && current !== section;
    current = section;
    const notice = document.getElementById("notice");
    const unknown = name && !byName(name) ? name : "";
    g.hide(notice, !unknown);
    g.put(notice, unknown ? `No such page: "${unknown.slice(0, 40)}". This is the ${sections[0].dataset.title.toLowerCase()}.` : "");
    // The server, too, takes the first page for an unknown one, so that the question can go out before this script.
    const known = section === asked && byName(name) === asked;
    g.feed.open(known || section === sections[0] ? name : section.dataset.page, subject(params, section.dataset.page));
    shown.show(params);
    g.title(shown.title);
    if (moved) { window.scrollTo(0, 0); document.getElementById("main").focus({ preventScroll: true }); }
  }

  function heard(news) {
    if (g.feed.server && land()) { route(); }
    if (g.feed.server) { single(); }
    g.status();
    const shown = page(current);
    if (news.reset) { shown.about(); }
    shown.tick(news);
  }

  // Whether the page in place of those that need a GPU is shown.
  g.isWithoutGpus = () => Boolean(current) && sections.some((section) => section.dataset.withoutGpus === current.dataset.page);

  function again() {
    page(current).about();
  }

  function start() {
    sections = [...document.querySelectorAll("[data-page]")];
    g.theme.start();
    // A skip link that changed the address would lead to another page.
    document.getElementById("skip").addEventListener("click", (click) => {
      click.preventDefault();
      document.getElementById("main").focus();
    });
    g.theme.on(again);
    g.notifier();
    g.printer();
    window.addEventListener("hashchange", route);
    window.addEventListener("resize", again);
    g.feed.on(heard);
    // Time goes on for what is old, although nothing comes.
    setInterval(() => { if (g.feed.server && !g.feed.isFresh() && !document.hidden) { page(current).tick(null); } }, 1000);
    g.status();
    route();
    if (g.feed.server) { heard({ reset: true, delta: null, values: [], tables: new Map() }); }
  }

  start();
})(window.gpumon);
