// Notifications of the browser, for who asked for them by the button in the head: my run ended or does nothing any more,
// a GPU became free. A change counts that was seen between two answers, one soon after the other: what happened while
// the page was not updated is no news, and of a recording nothing is.
// @ts-check
import { attribute, hide, put } from "./dom.js";
import { feed } from "./feed.js";
import { currentUser } from "./groups.js";

const KEY = "gpumon-notify";
const GAP = 150; // s: a tab that is hidden may ask once in a minute only
const ENDED = {
  finished: "has finished", failed: "has failed", died: "has died", interrupted: "was interrupted",
  stopped: "was stopped",
};
let isOn = false;
let last = null; // what was seen: boot, time, runs, and the GPUs that were used

const api = () => (typeof window.Notification === "function" ? window.Notification : null);
const isAllowed = () => Boolean(api()) && api().permission === "granted";

function remember() {
  try { if (isOn) { localStorage.setItem(KEY, "1"); } else { localStorage.removeItem(KEY); } } catch { /* a private window: it lasts as long as the page */ }
}

// What the button does, beside the page and for screen readers.
function say(text) {
  const place = document.getElementById("notified");
  put(place, text);
  hide(place, !text);
}

function label() {
  const button = document.getElementById("notify");
  const does = isOn && isAllowed();
  attribute(button, "aria-pressed", String(does));
  attribute(button, "title", does ? "Notifications are on" : "Notify of my runs and of free GPUs");
}

function isOnText() {
  const runs = currentUser() ? `when a run of ${currentUser()} ends or stalls, and ` : "";
  const more = currentUser() || feed.server?.nameless ? "" : " Say on the fleet page who you are for news of your runs.";
  return `While this page is open, your browser notifies you ${runs}when a GPU becomes free.${more}`;
}

async function press() {
  if (isOn && isAllowed()) {
    isOn = false;
    say("Notifications are off.");
  } else if (!api()) {
    say("This browser has no notifications here: most give them only to pages with https, and to pages of this machine.");
  } else {
    const answer = api().permission === "default" ? await api().requestPermission() : api().permission;
    isOn = answer === "granted";
    say(isOn ? isOnText() : answer === "denied"
      ? "This browser refuses notifications for this page: its settings of the page, beside the address, can allow them."
      : "This browser was not allowed to notify.");
  }
  remember();
  label();
}

function notify(title, body, tag, address) {
  if (!isOn || !isAllowed()) { return; }
  try {
    const shown = new (api())(title, { body, tag: `gpumon ${tag}` }); // tabs of one server tell it once
    shown.addEventListener("click", () => { window.focus(); location.hash = address; shown.close(); });
  } catch {
    isOn = false; // as on most phones, which want a service worker
    remember();
    label();
    say("This browser cannot notify from a page.");
  }
}

// How things are, of an answer that is of now; null where it is none.
function seen() {
  if (feed.state !== "live" || feed.recorded || !feed.server || !feed.server.watched) { return null; }
  const { free, used, runs } = feed.server.watched;
  return { boot: feed.boot, time: feed.now, free, used, runs: new Map(runs.map(([id, name, user, state, stalled]) => [id, { name, user, state, stalled }])) };
}

function take() {
  const now = seen();
  if (!now) { return; }
  const isNext = last && last.boot === now.boot && now.time >= last.time && now.time - last.time <= GAP;
  const wasUsed = isNext ? last.wasUsed : new Set();
  if (isNext) { tell(last, now); }
  for (const one of now.used) { wasUsed.add(one); }
  for (const one of now.free) { wasUsed.delete(one); }
  last = { ...now, wasUsed };
}

function tell(before, now) {
  const { hostname: host, watched } = feed.server;
  const [ofGpu, ofRun] = watched.places;
  for (const [id, run] of now.runs) {
    const then = before.runs.get(id);
    if (!then || then.state !== "running" || !currentUser() || run.user !== currentUser()) { continue; }
    const address = ofRun + encodeURIComponent(id);
    if (ENDED[run.state]) { notify(`${run.name} ${ENDED[run.state]}`, host, `${id} ${run.state}`, address); }
    else if (run.stalled && !then.stalled) { notify(`${run.name} is stalled`, `It makes no progress · ${host}`, `${id} stalled`, address); }
  }
  const free = now.free.filter((one) => before.wasUsed.has(one));
  if (free.length) {
    notify(free.length > 1 ? `GPUs ${free.join(", ")} are free` : `GPU ${free[0]} is free`, host, `free ${free.join(" ")}`, free.length > 1 ? "#/" : ofGpu + encodeURIComponent(free[0]));
  }
}

// Once the page stands.
export function startNotifications() {
  try { isOn = localStorage.getItem(KEY) === "1"; } catch { isOn = false; }
  document.getElementById("notify").addEventListener("click", press);
  window.addEventListener("hashchange", () => say(""));
  label();
  feed.on(take);
  take();
}
