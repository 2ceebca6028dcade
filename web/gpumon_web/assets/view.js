// A page whose layout is part of the document: its elements are filled with values by their kind.
// @ts-check
import { csvButton } from "./csv.js";
import { elements, hide } from "./dom.js";
import { feed } from "./feed.js";
import { fitTable } from "./fitting.js";
import { keptFigure } from "./kept_figure.js";
import { showUnknown, showValue } from "./kinds.js";
import { liveFigure } from "./live_figure.js";
import { position } from "./position.js";
import { latestAnswer } from "./request.js";
import { searchField, tableRows } from "./rows.js";
import { showStatus, showTitle } from "./status.js";
import { theme } from "./theme.js";

const RETRY = 3; // s until the ledger is asked again after a request that failed
const SETTLES = 1; // s that the ledger may take to write what just happened
const BLANK_AFTER = 1000; // ms after which a page that is opened again stops showing what it showed before

// Arguments that the browser adds.
const browserArguments = { zone: Intl.DateTimeFormat().resolvedOptions().timeZone };

// A page in the form that router.js uses: show(arguments), about() draws all of it, and tick(news) what is new.
export function pageView(section) {
  const askLedger = latestAnswer();
  const askRest = latestAnswer();
  const hasLedger = Boolean(section.dataset.kept); // values of the ledger belong to the page
  const argumentNames = section.dataset.keptArgs.split(" ").filter(Boolean);
  const bound = Map.groupBy(elements(section, "[data-bind]"), (node) => node.dataset.bind);
  const tables = elements(section, "[data-rows]").map((table) => tableRows(table, requestRest));
  const tableOf = (name) => tables.find((table) => table.name === name);
  const fields = elements(section, "[data-search]").map((place) => searchField(place, tableOf(place.dataset.search)));
  for (const place of elements(section, "[data-csv]")) { csvButton(place, tableOf(place.dataset.csv)); }
  const isLive = Boolean(section.querySelector("[data-figure]")); // the page is about a live chart; its ledger values are secondary
  const figures = [...elements(section, "[data-figure]").map(liveFigure), ...elements(section, "[data-kept-figure]").map(keptFigure)];
  const refits = elements(section, ".tablebox").map(fitTable);
  let params = new URLSearchParams();
  let due = 0; // when the ledger is asked next, by performance.now()
  let runs = ""; // the running trainings at the last request
  let view = null; // the feed's view that is shown; null at first
  let isAskingRest = false;
  let freshness = ""; // of the values when all were drawn
  let blankTimer = 0;

  function show(given) {
    due = 0;
    params = given;
    runs = "";
    for (const one of [...tables, ...fields]) { one.open(params); }
    if (view) {
      for (const refit of refits) { refit(); }
      if (hasLedger && !isLive && view !== feed.view) { clear(); }
      clearTimeout(blankTimer);
      if (feed.isFresh()) { blankTimer = setTimeout(blank, BLANK_AFTER); } else { blank(); }
    }
    view = feed.view;
    for (const figure of figures) { figure.open(params); }
    about();
    load();
  }

  const freshnessNow = () => `${feed.isFresh()} ${feed.answered}`;

  // Shows all values as unknown.
  function clear() {
    for (const nodes of bound.values()) { nodes.forEach(showUnknown); }
    for (const figure of figures) { figure.clear(); }
  }

  // Removes what the page showed when it was left, if nothing newer has come.
  function blank() {
    if (feed.view.values.size || feed.view.kept.size || section.hidden) { return; }
    clear();
    about();
  }

  function about() {
    freshness = freshnessNow();
    for (const name of bound.keys()) { showNamed(name); }
    for (const table of tables) { table.draw(null); }
    showParts();
    for (const figure of figures) { figure.about(); }
  }

  // Shows or dims parts of the page that depend on a value.
  function showParts() {
    const isKnown = (hasLedger && !isLive) || feed.view.values.size > 0;
    const has = (name) => { const value = feed.value(name); return Boolean(value) && value.length !== 0; };
    section.classList.toggle("waits", hasLedger && !feed.view.kept.size);
    for (const node of elements(section, "[data-show]")) { hide(node, isKnown && !has(node.dataset.show)); }
    for (const node of elements(section, "[data-unless]")) { hide(node, has(node.dataset.unless)); }
    for (const node of elements(section, "[data-dim]")) { node.classList.toggle("old", has(node.dataset.dim)); }
  }

  function showNamed(name) {
    for (const node of bound.get(name) || []) { showNode(node); }
  }

  function showNode(node) {
    const { bind: name, kind } = node.dataset;
    if (feed.has(name)) { showValue(node, kind, feed.value(name)); }
    if (node.tagName === "P") { hide(node, !node.textContent); } // an empty paragraph would be a gap
  }

  const showKind = (kind) => elements(section, `[data-bind][data-kind=${kind}]`).forEach(showNode);

  // Draws what is new, and what changes with time; without news, only the latter.
  function tick(news) {
    if (freshness !== freshnessNow()) { about(); }
    for (const name of news ? news.values : []) { showNamed(name); }
    for (const table of tables) { table.draw(changedRows(news, table)); }
    showKind("tiles");
    if (news && news.values.length) { showParts(); }
    for (const figure of figures) { figure.tick(news); }
    load();
  }

  // The changed cells of a table and of its groups.
  function changedRows(news, table) {
    if (!news) { return new Map(); }
    return new Map([...news.tables.get(table.name) || [], ...news.tables.get(table.within) || []]);
  }

  // Requests values from the ledger: rarely, and soon after a run began, ended, or entered another epoch.
  function load() {
    if (!hasLedger) { return; }
    if (feed.server) {
      const now = JSON.stringify(feed.server.runs.filter(([run]) => !argumentNames.includes("id") || run === params.get("id")));
      if (runs && now !== runs) { due = Math.min(due, performance.now() + SETTLES * 1000); }
      runs = now;
    }
    if (performance.now() < due) { return; }
    due = Infinity;
    const [asked, query] = [feed.view, String(ledgerQuery())];
    askLedger(`api/kept?${query}${position.exact()}`, (answer, took) => {
      due = performance.now() + (answer && !answer.unread ? Math.max(answer.again, took * 20) : RETRY) * 1000;
      if (answer && asked === feed.view && !isUnread(answer, query)) { keep(answer); }
    });
  }

  const ledgerQuery = () => new URLSearchParams([["page", section.dataset.page], ...argumentNames.map((name) => [name, params.get(name) || browserArguments[name] || ""])]);

  // Whether the ledger cannot be read now although it was read before: those values stay, and the head of the page says so.
  function isUnread({ unread }, query) {
    const wasRead = feed.view.readQuery === query;
    feed.view.unread = unread && wasRead ? `${unread} What is shown was read before.` : "";
    if (!unread) { feed.view.readQuery = query; }
    showStatus();
    return Boolean(feed.view.unread);
  }

  function keep(answer) {
    const hasNewUsers = theme.addUsers([...answer.users, ...(answer.people || [])]);
    const news = feed.keep(answer);
    if (hasNewUsers) { showKind("mine"); }
    for (const name of news.values) { showNamed(name); }
    if (news.values.includes("day")) { showKind("day"); }
    for (const table of tables) { table.draw(news.values.length ? null : changedRows(news, table)); }
    if (news.values.length) { showParts(); showTitle(); }
    for (const figure of figures) { figure.about(); }
  }

  // Requests all rows of the tables: by themselves only the newest ones come.
  function requestRest() {
    if (isAskingRest) { return; }
    isAskingRest = true;
    const asked = feed.view;
    askRest(`api/kept?rest=1&${ledgerQuery()}${position.exact()}`, (answer) => {
      isAskingRest = false;
      if (answer && asked === feed.view) { keep(answer); }
    });
  }

  return { title: section.dataset.title, show, about, tick };
}
