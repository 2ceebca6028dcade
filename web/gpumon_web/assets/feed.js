// The newest values of the page that is shown, requested once each interval: slower while the tab is hidden, at once when
// it is shown again. Answers are merged here, and listeners draw them.
// @ts-check
/** @import { News } from "./types" */
import { position } from "./position.js";
import { redrawPage } from "./router.js";
import { theme } from "./theme.js";

const WINDOW = 600;
const HIDDEN = 15;
const SLOWEST = 15;
const GROWTH = 1.7;
const PATIENCE = 20000;
const PATIENT = 5; // s
const REMEMBERED = 8; // pages
const listeners = [];
let timer = 0;
let asking = null;
let wait = 1;
let opened = null;

const empty = () => ({ values: new Map(), kept: new Map(), tables: new Map(), figures: new Map(), series: { t: [], lines: new Map() } });

export const feed = {
  boot: "", seq: 0, interval: 1,
  page: "", args: {}, // as the address names them
  resets: 0, // how often the lines of the open page were replaced
  view: empty(), // values, rows, figures and lines of that page; `kept` are the values that the ledger has of it
  server: null, // facts of the server for every page; null before the first numbers
  // connecting, live, stale, ended (a recording), reconnecting, locked
  state: "connecting", said: "", label: "", problem: "", leftOut: "",
  step: "", // what to do, where the server knows more of that than the page
  answered: true, // false: the last question that the server passed on had no answer, which is known before all is old
  recorded: false, // of another time than now
  now: NaN, // the time of the newest values
  age: 0, // seconds for which the daemon had been silent when it was last asked; null where that is not known
  heard: 0, // when the server last answered
  on(listener) { listeners.push(listener); },
  open, keep, tell, renew,
  // A value by name: what is so now, else what the ledger has.
  value: (name) => feed.view.values.get(name) ?? feed.view.kept.get(name) ?? null,
  has: (name) => feed.view.values.has(name) || feed.view.kept.has(name),
  // Seconds for which nothing new has come; NaN where that is not known.
  silence() {
    if (feed.state === "live" || feed.state === "ended") { return 0; }
    return feed.age === null || !feed.heard ? NaN : feed.age + (performance.now() - feed.heard) / 1000;
  },
  // Whether what is shown is what is. One question that got no answer is no news yet.
  isFresh() {
    return feed.state === "live" || (feed.state === "reconnecting" && feed.wasLive && feed.silence() < patience());
  },
  // Where "now" is in charts: behind the newest values by as long as nothing new came.
  clock() {
    const silence = feed.silence();
    return feed.isFresh() || Number.isNaN(silence) ? feed.now : feed.now + silence;
  },
  // What a state is called once nothing new comes.
  oldState() { return feed.state === "ended" ? "ended" : "stale"; },
};

// Seconds without an answer for which what was live is what is.
const patience = () => Math.max(PATIENT, 3 * feed.interval);

// Another page, or other arguments of it: request everything at once. Without an answer, what was seen there last is
// shown as what it is: old, and from then.
const seen = new Map();
function open(page, args) {
  const wanted = JSON.stringify([page, args]);
  if (wanted === opened) { return; }
  const { view, now, age, heard } = feed;
  seen.delete(opened);
  if (view.values.size || view.kept.size) { seen.set(opened, { view, now, age, heard }); }
  if (seen.size > REMEMBERED) { seen.delete(seen.keys().next().value); }
  opened = wanted;
  const last = (!feed.isFresh() && seen.get(wanted)) || { view: empty() };
  Object.assign(feed, { page, args, seq: 0 }, last);
  if (asking) { asking.abort(); asking = null; }
  poll();
}

// The same page at another position of a recording: request it at once, and everything if it `jumps`.
function renew(jumps) {
  if (jumps) { Object.assign(feed, { seq: 0, view: empty(), resets: feed.resets + 1 }); }
  if (asking) { asking.abort(); asking = null; }
  poll();
  if (jumps) { redrawPage(true); }
}

/** @param {News} news */
function tell(news) {
  for (const listener of listeners) { listener(news); }
}

function take(delta) {
  const news = merged(delta);
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
  position.take(delta.play, feed.now);
  feed.age = delta.live || delta.ended ? 0 : delta.age;
  feed.heard = performance.now();
  feed.wasLive = delta.live;
  feed.state = delta.live ? "live" : delta.ended && delta.age === 0 ? "ended" : "stale";
  feed.said = delta.state;
  return news;
}

function merged(delta) {
  if (delta.now) { feed.now = delta.now; }
  if (Object.keys(delta.server).length) {
    feed.server = { ...feed.server, ...delta.server };
    theme.give(feed.server.places);
    theme.meet(feed.server.users);
  }
  if (delta.reset) {
    feed.view.values.clear();
    for (const name of Object.keys(delta.tables)) { feed.view.tables.delete(name); }
  }
  const news = merge(delta, feed.view.values);
  grow(delta.series);
  return { ...news, delta, reset: Boolean(delta.reset) };
}

// What the ledger has of the page that is open.
function keep(found) {
  for (const [name, figure] of Object.entries(found.figures)) { feed.view.figures.set(name, figure); }
  return merge(found, feed.view.kept);
}

// Values and cells of rows, put over those that are known; gives what is new: names, and for each table its cells.
function merge({ values, tables }, into) {
  const view = feed.view;
  const changed = { values: [], tables: new Map() };
  for (const [name, value] of Object.entries(values)) {
    if (into.has(name) && same(into.get(name), value)) { continue; }
    into.set(name, value);
    changed.values.push(name);
  }
  for (const [name, { order, cells, total }] of Object.entries(tables)) {
    const table = view.tables.get(name) || { order: [], rows: new Map(), total: 0 };
    const fresh = new Map();
    for (const [key, row] of Object.entries(cells)) {
      const known = table.rows.get(key);
      const news = Object.keys(row).filter((cell) => !known || !same(known[cell], row[cell]));
      if (known) { for (const cell of news) { known[cell] = row[cell]; } } else { table.rows.set(key, { ...row }); }
      if (news.length) { fresh.set(key, news); }
    }
    if (order) {
      // Some rows of more: those that are known stay.
      table.order = total > order.length ? [...new Set([...table.order, ...order])] : order;
      table.total = Math.max(total || 0, table.order.length);
      const kept = new Set(table.order);
      for (const key of table.rows.keys()) { if (!kept.has(key)) { table.rows.delete(key); } }
    }
    view.tables.set(name, table);
    changed.tables.set(name, fresh);
  }
  return changed;
}

const same = (one, other) => one === other || (typeof one === "object" && JSON.stringify(one) === JSON.stringify(other));

// The lines, longer by what is new, and shorter by what is too old.
function grow({ t, lines, whole, every }) {
  const all = feed.view.series;
  all.every = every;
  if (whole) {
    if (all.t.length) { feed.resets += 1; }
    all.t = [];
    all.lines.clear();
  }
  if (!t.length) { return; }
  const before = all.t.length;
  all.t.push(...t);
  const old = Math.max(0, all.t.findIndex((time) => time > t[t.length - 1] - WINDOW));
  all.t.splice(0, old);
  for (const name of new Set([...all.lines.keys(), ...Object.keys(lines)])) {
    const line = all.lines.get(name) || new Array(before).fill(null);
    line.push(...(lines[name] || new Array(t.length).fill(null)));
    line.splice(0, old);
    all.lines.set(name, line);
  }
}

async function poll() {
  clearTimeout(timer);
  if (asking || opened === null) { return; }
  const mine = asking = new AbortController();
  let found = null;
  let failure = null;
  const limit = setTimeout(() => mine.abort(), PATIENCE);
  const late = setTimeout(() => { if (asking === mine && feed.wasLive) { unanswered(); } }, patience() * 1000);
  try {
    const query = new URLSearchParams({ page: feed.page, boot: feed.boot, since: String(feed.seq), ...feed.args, ...position.query() });
    const answer = await fetch(`api/delta?${query}`, { signal: mine.signal, cache: "no-store", credentials: "same-origin" });
    if (!answer.ok) { throw new Refusal(answer.status); }
    found = await answer.json();
  } catch (error) {
    failure = error;
  }
  clearTimeout(limit);
  clearTimeout(late);
  if (asking !== mine) { return; } // another page is open now
  asking = null;
  if (failure) { failed(failure); return; }
  wait = 1;
  const news = take(found);
  again(document.hidden ? HIDDEN : position.wait() || Math.max(1, feed.interval));
  tell(news);
}

class Refusal extends Error {
  constructor(status) { super(`refused: ${status}`); this.status = status; }
}

function failed(error) {
  wait = Math.min(SLOWEST, wait * GROWTH);
  again(document.hidden ? HIDDEN : wait);
  unanswered(error.status === 401);
}

// No answer, or none yet, as on a link that stalls: what is shown grows old meanwhile.
function unanswered(isLocked = false) {
  feed.state = isLocked ? "locked" : "reconnecting";
  feed.said = isLocked ? "reload the page to sign in" : "reconnecting";
  tell({ reset: false, delta: null, values: [], tables: new Map() });
}

function again(seconds) {
  clearTimeout(timer);
  timer = setTimeout(poll, seconds * 1000);
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) { poll(); } });
window.addEventListener("online", poll);
