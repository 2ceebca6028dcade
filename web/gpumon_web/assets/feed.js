// The newest values of the page that is shown: requested once each interval, more slowly while the tab is hidden, and merged
// here for the listeners that draw them.
// @ts-check
/** @import { News } from "./types" */
import { position } from "./position.js";
import { fetchJson } from "./request.js";
import { redrawPage } from "./router.js";
import { theme } from "./theme.js";

const WINDOW = 600; // s of lines that are kept
const HIDDEN_WAIT = 15; // s between requests of a hidden tab
const LONGEST_WAIT = 15; // s between failed requests, which come at growing intervals
const GROWTH = 1.7;
const TIMEOUT = 20000; // ms
const LEAST_PATIENCE = 5; // s
const REMEMBERED = 8; // pages
const listeners = [];
const remembered = new Map(); // by page and arguments, what was shown there last
let timer = 0;
let request = null; // the controller of the request that is under way
let retryWait = 1;
let opened = null; // page and arguments that are open, as JSON

const emptyView = () => ({ values: new Map(), kept: new Map(), tables: new Map(), figures: new Map(), series: { t: [], lines: new Map() } });

export const feed = {
  boot: "", seq: 0, interval: 1,
  page: "", args: {}, // as the address names them
  resets: 0, // how often the lines of the open page were replaced
  view: emptyView(), // values, rows, figures and lines of the page; `kept` are values from the ledger
  server: null, // facts for every page; null before the first sample
  state: "connecting", // connecting, live, stale, ended (a recording), reconnecting or locked
  said: "", label: "", problem: "", leftOut: "",
  step: "", // what the viewer can do about a stale state, if the server knows
  answered: true, // false: the source did not answer the newest query, although its last values are still fresh
  recorded: false, // the values are from a recording
  now: NaN, // the time of the newest values
  age: 0, // seconds for which the daemon had been silent at the last answer; null if unknown
  heard: 0, // time of the last answer, of performance.now()
  on(listener) { listeners.push(listener); },
  open, keep, renew,
  // The live value of a name, or else the one of the ledger.
  value: (name) => feed.view.values.get(name) ?? feed.view.kept.get(name) ?? null,
  has: (name) => feed.view.values.has(name) || feed.view.kept.has(name),
  // Seconds for which nothing new has come; NaN if unknown.
  silence() {
    if (feed.state === "live" || feed.state === "ended") { return 0; }
    return feed.age === null || !feed.heard ? NaN : feed.age + (performance.now() - feed.heard) / 1000;
  },
  // Whether the values are current. A single request without an answer changes nothing.
  isFresh() {
    return feed.state === "live" || (feed.state === "reconnecting" && feed.wasLive && feed.silence() < patience());
  },
  // The time at which charts end: behind the newest values, by as long as nothing new has come.
  clock() {
    const silence = feed.silence();
    return feed.isFresh() || Number.isNaN(silence) ? feed.now : feed.now + silence;
  },
  // The word for values that are not fresh.
  oldState() { return feed.state === "ended" ? "ended" : "stale"; },
};

// Seconds without an answer for which live values count as fresh.
const patience = () => Math.max(LEAST_PATIENCE, 3 * feed.interval);

// Opens a page, or other arguments of it, and requests all of its values. While the server does not answer, the page has
// the values that it showed last, with their age.
function open(page, args) {
  const wanted = JSON.stringify([page, args]);
  if (wanted === opened) { return; }
  const { view, now, age, heard } = feed;
  remembered.delete(opened);
  if (view.values.size || view.kept.size) { remembered.set(opened, { view, now, age, heard }); }
  if (remembered.size > REMEMBERED) { remembered.delete(remembered.keys().next().value); }
  opened = wanted;
  const last = (!feed.isFresh() && remembered.get(wanted)) || { view: emptyView() };
  Object.assign(feed, { page, args, seq: 0 }, last);
  restart();
}

// Requests the same page at another position of a recording; all of its values if the position `jumps`.
function renew(jumps) {
  if (jumps) { Object.assign(feed, { seq: 0, view: emptyView(), resets: feed.resets + 1 }); }
  restart();
  if (jumps) { redrawPage(true); }
}

function restart() {
  if (request) { request.abort(); request = null; }
  poll();
}

/** @param {News} news */
function notify(news) {
  for (const listener of listeners) { listener(news); }
}

function takeOver(delta) {
  const news = mergeAnswer(delta);
  feed.boot = delta.boot;
  feed.seq = delta.seq;
  feed.interval = delta.interval;
  feed.label = delta.label;
  feed.problem = delta.problem;
  feed.step = delta.step || "";
  feed.answered = delta.answered !== false;
  feed.leftOut = delta.left_out;
  feed.recorded = Boolean(delta.recorded);
  feed.log = delta.log || null;
  position.update(delta.play, feed.now);
  feed.age = delta.live || delta.ended ? 0 : delta.age;
  feed.heard = performance.now();
  feed.wasLive = delta.live;
  feed.state = delta.live ? "live" : delta.ended && delta.age === 0 ? "ended" : "stale";
  feed.said = delta.state;
  return news;
}

function mergeAnswer(delta) {
  if (delta.now) { feed.now = delta.now; }
  if (Object.keys(delta.server).length) {
    feed.server = { ...feed.server, ...delta.server };
    theme.setPlaces(feed.server.places);
    theme.addUsers(feed.server.users);
  }
  if (delta.reset) {
    feed.view.values.clear();
    for (const name of Object.keys(delta.tables)) { feed.view.tables.delete(name); }
  }
  const news = merge(delta, feed.view.values);
  extendLines(delta.series);
  return { ...news, delta, reset: Boolean(delta.reset) };
}

// Merges values of the ledger into the page that is open; returns the news.
function keep(answer) {
  for (const [name, figure] of Object.entries(answer.figures)) { feed.view.figures.set(name, figure); }
  return merge(answer, feed.view.kept);
}

// Merges values and cells of rows; returns the names of values that changed, and by table the names of changed cells by row.
function merge({ values, tables }, known) {
  const changed = { values: [], tables: new Map() };
  for (const [name, value] of Object.entries(values)) {
    if (known.has(name) && isSame(known.get(name), value)) { continue; }
    known.set(name, value);
    changed.values.push(name);
  }
  for (const [name, rows] of Object.entries(tables)) {
    const table = feed.view.tables.get(name) || { order: [], rows: new Map(), total: 0 };
    feed.view.tables.set(name, table);
    changed.tables.set(name, mergeRows(table, rows));
  }
  return changed;
}

function mergeRows(table, { order, cells, total }) {
  const changed = new Map();
  for (const [key, row] of Object.entries(cells)) {
    const known = table.rows.get(key) || {};
    const news = Object.keys(row).filter((cell) => !(cell in known) || !isSame(known[cell], row[cell]));
    for (const cell of news) { known[cell] = row[cell]; }
    table.rows.set(key, known);
    if (news.length) { changed.set(key, news); }
  }
  if (order) {
    // If the table has more rows than these, the known ones stay.
    table.order = total > order.length ? [...new Set([...table.order, ...order])] : order;
    table.total = Math.max(total || 0, table.order.length);
    const kept = new Set(table.order);
    for (const key of table.rows.keys()) { if (!kept.has(key)) { table.rows.delete(key); } }
  }
  return changed;
}

const isSame = (a, b) => a === b || (typeof a === "object" && JSON.stringify(a) === JSON.stringify(b));

// Appends new points to the lines, and removes those that are too old.
function extendLines({ t, lines, whole, every }) {
  const series = feed.view.series;
  series.every = every;
  if (whole) {
    if (series.t.length) { feed.resets += 1; }
    series.t = [];
    series.lines.clear();
  }
  if (!t.length) { return; }
  const before = series.t.length;
  series.t.push(...t);
  const old = Math.max(0, series.t.findIndex((time) => time > t[t.length - 1] - WINDOW));
  series.t.splice(0, old);
  for (const name of new Set([...series.lines.keys(), ...Object.keys(lines)])) {
    const line = series.lines.get(name) || new Array(before).fill(null);
    line.push(...(lines[name] || new Array(t.length).fill(null)));
    line.splice(0, old);
    series.lines.set(name, line);
  }
}

async function poll() {
  clearTimeout(timer);
  if (request || opened === null) { return; }
  const mine = request = new AbortController();
  let answer = null;
  let failure = null;
  const timeout = setTimeout(() => mine.abort(), TIMEOUT);
  const late = setTimeout(() => { if (request === mine && feed.wasLive) { reportSilence(); } }, patience() * 1000);
  try {
    const query = new URLSearchParams({ page: feed.page, boot: feed.boot, since: String(feed.seq), ...feed.args, ...position.query() });
    answer = await fetchJson(`api/delta?${query}`, mine.signal);
  } catch (error) {
    failure = error;
  }
  clearTimeout(timeout);
  clearTimeout(late);
  if (request !== mine) { return; } // another page is open now
  request = null;
  if (failure) {
    retryWait = Math.min(LONGEST_WAIT, retryWait * GROWTH);
    schedule(retryWait);
    reportSilence(failure.status === 401);
    return;
  }
  retryWait = 1;
  const news = takeOver(answer);
  schedule(position.wait() || Math.max(1, feed.interval));
  notify(news);
}

// The server has not answered, or not yet, as on a link that stalls: the values on the page grow old.
function reportSilence(isLocked = false) {
  feed.state = isLocked ? "locked" : "reconnecting";
  feed.said = isLocked ? "reload the page to sign in" : "reconnecting";
  notify({ reset: false, delta: null, values: [], tables: new Map() });
}

function schedule(seconds) {
  clearTimeout(timer);
  timer = setTimeout(poll, (document.hidden ? HIDDEN_WAIT : seconds) * 1000);
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) { poll(); } });
window.addEventListener("online", poll);
