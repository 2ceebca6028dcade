// A page whose layout stands in the document: filled with values by kind once it is first opened.
// @ts-check
import { latestAnswer } from "./ask.js";
import { csvButton } from "./csv.js";
import { hide } from "./dom.js";
import { feed } from "./feed.js";
import { fitTable } from "./fitting.js";
import { meetUsers } from "./groups.js";
import { keptFigure } from "./kept_figure.js";
import { showUnknown, showValue } from "./kinds.js";
import { liveFigure } from "./live_figure.js";
import { position } from "./position.js";
import { searchField, tableRows } from "./rows.js";
import { showStatus } from "./status.js";
import { theme } from "./theme.js";
import { showTitle } from "./title.js";

const SOON = 3; // s between questions for what the ledger keeps, after one that got no answer
const SETTLES = 1; // s that the ledger may take to write what just happened
const LATE = 1; // s after which what a page showed when it was left may not stand there any more

// Arguments that the browser knows by itself.
const own = { zone: Intl.DateTimeFormat().resolvedOptions().timeZone };

// A page in the form that the router knows: show(), about() and tick().
export function pageView(section) {
  const ask = latestAnswer();
  const askRest = latestAnswer();
  const isKept = Boolean(section.dataset.kept);
  const names = section.dataset.keptArgs.split(" ").filter(Boolean);
  const bound = new Map(); // name -> elements
  for (const node of section.querySelectorAll("[data-bind]")) {
    if (!bound.has(node.dataset.bind)) { bound.set(node.dataset.bind, []); }
    bound.get(node.dataset.bind).push(node);
  }
  const tables = [...section.querySelectorAll("[data-rows]")].map((table) => tableRows(table, rest));
  const fields = [...section.querySelectorAll("[data-search]")].map((place) => searchField(place, tables.find((table) => table.name === place.dataset.search)));
  for (const place of section.querySelectorAll("[data-csv]")) { csvButton(place, tables.find((table) => table.name === place.dataset.csv)); }
  const isLive = Boolean(section.querySelector("[data-figure]")); // it is about a chart that is live, and what is kept stands beside it
  const figures = [...section.querySelectorAll("[data-figure]")].map(liveFigure)
    .concat([...section.querySelectorAll("[data-kept-figure]")].map(keptFigure));
  const boxes = [...section.querySelectorAll(".tablebox")].map(fitTable); // what lets columns leave
  let params = new URLSearchParams();
  let asked = 0;
  let outline = "";
  let seen = null; // the view that is shown; null: none was yet
  let wantsRest = false; // and waits for it
  let looked = ""; // how values were drawn: as of now, as old, or as of now without an answer since
  let late = 0;
  const page = { title: section.dataset.title, show, about, tick };

  function show(given) {
    asked = 0;
    params = given;
    outline = "";
    for (const one of [...tables, ...fields]) { one.open(params); }
    if (seen) {
      for (const refit of boxes) { refit(); }
      if (isKept && !isLive && seen !== feed.view) { clear(); }
      clearTimeout(late);
      if (feed.isFresh()) { late = setTimeout(blank, LATE * 1000); } else { blank(); }
    }
    seen = feed.view;
    for (const figure of figures) { figure.open(params); }
    about();
    load();
  }

  const look = () => `${feed.isFresh()} ${feed.answered}`;

  // Of something else, nothing is known until it came.
  function clear() {
    for (const nodes of bound.values()) {
      for (const node of nodes) { showUnknown(node); }
    }
    for (const figure of figures) { figure.clear(); }
  }

  // What stands here is of when the page was left, and nothing newer has come.
  function blank() {
    if (feed.view.values.size || feed.view.kept.size || section.hidden) { return; }
    clear();
    about();
  }

  // Draw everything again.
  function about() {
    looked = look();
    for (const [name, nodes] of bound) { for (const node of nodes) { value(node, name); } }
    for (const table of tables) { table.draw(null); }
    places();
    for (const figure of figures) { figure.about(); }
  }

  // What is there only while a value says so, or dimmed then.
  function places() {
    const isKnown = (isKept && !isLive) || feed.view.values.size > 0;
    const has = (name) => { const one = feed.value(name); return Boolean(one) && one.length !== 0; };
    section.classList.toggle("waits", isKept && !feed.view.kept.size);
    for (const node of section.querySelectorAll("[data-show]")) { hide(node, isKnown && !has(node.dataset.show)); }
    for (const node of section.querySelectorAll("[data-unless]")) { hide(node, has(node.dataset.unless)); }
    for (const node of section.querySelectorAll("[data-dim]")) { node.classList.toggle("old", has(node.dataset.dim)); }
  }

  function value(node, name) {
    if (feed.has(name)) { showValue(node, node.dataset.kind, feed.value(name)); }
    if (node.tagName === "P") { hide(node, !node.textContent); } // a paragraph of nothing would be a gap
  }

  // What is new, and what moves by itself; null: only the latter.
  function tick(news) {
    if (looked !== look()) { about(); }
    for (const name of news ? news.values : []) { for (const node of bound.get(name) || []) { value(node, name); } }
    for (const table of tables) { table.draw(changed(news, table)); }
    for (const node of section.querySelectorAll("[data-kind=tiles]")) { value(node, node.dataset.bind); }
    if (news && news.values.length) { places(); }
    for (const figure of figures) { figure.tick(news); }
    load();
  }

  // The cells that are new, of the rows of a table and of its groups.
  function changed(news, table) {
    const found = (news && news.tables.get(table.name)) || new Map();
    const groups = news && table.within && news.tables.get(table.within);
    return groups ? new Map([...found, ...groups]) : found;
  }

  // Values from the ledger: rarely, and soon after a run began, ended, or entered another epoch.
  function load() {
    if (!isKept) { return; }
    if (feed.server) {
      const id = params.get("id");
      const runs = JSON.stringify(feed.server.runs.filter(([run]) => !names.includes("id") || run === id));
      if (outline && runs !== outline) { asked = Math.min(asked, performance.now() + SETTLES * 1000); }
      outline = runs;
    }
    if (performance.now() < asked) { return; }
    asked = Infinity;
    const [view, of] = [feed.view, String(query())];
    ask(`api/kept?${of}${position.exact()}`, (found, took) => {
      asked = performance.now() + (found && !found.unread ? Math.max(found.again, took * 20) : SOON) * 1000;
      if (found && view === feed.view && !stays(found, of)) { keep(found); }
    });
  }

  const query = () => new URLSearchParams([["page", section.dataset.page], ...names.map((name) => [name, params.get(name) || own[name] || ""])]);

  // What cannot be read now stays as it was read before, and the head of the page says so.
  function stays({ unread }, of) {
    const view = feed.view;
    const isRead = view.readOf === of;
    view.unread = unread && isRead ? `${unread} What is shown was read before.` : "";
    if (!unread) { view.readOf = of; }
    showStatus();
    return Boolean(view.unread);
  }

  function keep(found) {
    const before = theme.met().length;
    theme.meet(found.users);
    const news = feed.keep(found);
    if (meetUsers(found.people || []) || theme.met().length > before) { for (const node of section.querySelectorAll("[data-kind=mine]")) { value(node, node.dataset.bind); } }
    for (const name of news.values) { for (const node of bound.get(name) || []) { value(node, name); } }
    if (news.values.includes("day")) { for (const node of section.querySelectorAll("[data-bind][data-kind=day]")) { value(node, node.dataset.bind); } }
    for (const table of tables) { table.draw(news.values.length ? null : changed(news, table)); }
    if (news.values.length) { places(); showTitle(); }
    for (const figure of figures) { figure.about(); }
  }

  // The newest rows come by themselves; the others once the viewer scrolls to them, or sorts by something else.
  function rest() {
    if (wantsRest) { return; }
    wantsRest = true;
    const view = feed.view;
    askRest(`api/kept?rest=1&${query()}${position.exact()}`, (found) => {
      wantsRest = false;
      if (found && view === feed.view) { keep(found); }
    });
  }
  return page;
}
