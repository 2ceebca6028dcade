// Notifications of the browser, for viewers who switch them on: a run of theirs ended or stalls, or a GPU became free. Only a
// change between two answers that follow each other closely is reported, and none of a recording.
// @ts-check
import { attribute, hide, put } from "./dom.js";
import { feed } from "./feed.js";
import { readSetting, saveSetting } from "./settings.js";
import { currentUser } from "./viewer.js";

const KEY = "gpumon-notify";
const GAP = 150; // s between two answers at most: a browser lets a hidden tab run once a minute
const ENDED = {
  finished: "has finished", failed: "has failed", died: "has died", interrupted: "was interrupted",
  stopped: "was stopped",
};
let isOn = false;
let last = null; // the state of the previous answer, with the GPUs that were seen in use

const api = () => (typeof window.Notification === "function" ? window.Notification : null);
const isAllowed = () => Boolean(api()) && api().permission === "granted";

// Switches notifications on or off, and says so.
function set(isWanted, words) {
  isOn = isWanted;
  saveSetting(KEY, isOn ? "1" : "");
  say(words);
  label();
}

function say(words) {
  const place = document.getElementById("notified");
  put(place, words);
  hide(place, !words);
}

function label() {
  const button = document.getElementById("notify");
  const isActive = isOn && isAllowed();
  attribute(button, "aria-pressed", String(isActive));
  attribute(button, "title", isActive ? "Notifications are on" : "Notify of my runs and of free GPUs");
}

function onWords() {
  const runs = currentUser() ? `when a run of ${currentUser()} ends or stalls, and ` : "";
  const more = currentUser() || feed.server?.nameless ? "" : " Say on the fleet page who you are for news of your runs.";
  return `While this page is open, your browser notifies you ${runs}when a GPU becomes free.${more}`;
}

async function toggle() {
  if (isOn && isAllowed()) { set(false, "Notifications are off."); return; }
  if (!api()) {
    set(isOn, "This browser has no notifications here: most give them only to pages with https, and to pages of this machine.");
    return;
  }
  const answer = api().permission === "default" ? await api().requestPermission() : api().permission;
  const isGranted = answer === "granted";
  set(isGranted, isGranted ? onWords() : answer === "denied"
    ? "This browser refuses notifications for this page: its settings of the page, beside the address, can allow them."
    : "This browser was not allowed to notify.");
}

function notify(title, body, tag, address) {
  if (!isOn || !isAllowed()) { return; }
  try {
    const notification = new (api())(title, { body, tag: `gpumon ${tag}` }); // several tabs of one server show it once
    notification.addEventListener("click", () => { window.focus(); location.hash = address; notification.close(); });
  } catch {
    set(false, "This browser cannot notify from a page."); // most phones require a service worker
  }
}

// The watched runs and GPUs of a live answer; null for any other answer.
function watchedState() {
  if (feed.state !== "live" || feed.recorded || !feed.server || !feed.server.watched) { return null; }
  const { free, used, runs } = feed.server.watched;
  return { boot: feed.boot, time: feed.now, free, used, runs: new Map(runs.map(([id, name, user, state, stalled]) => [id, { name, user, state, stalled }])) };
}

function update() {
  const now = watchedState();
  if (!now) { return; }
  const follows = last && last.boot === now.boot && now.time >= last.time && now.time - last.time <= GAP;
  const wasUsed = follows ? last.wasUsed : new Set();
  if (follows) { notifyOfChanges(last, now); }
  for (const gpu of now.used) { wasUsed.add(gpu); }
  for (const gpu of now.free) { wasUsed.delete(gpu); }
  last = { ...now, wasUsed };
}

function notifyOfChanges(before, now) {
  const { hostname: host, watched } = feed.server;
  const [gpuLink, runLink] = watched.places;
  for (const [id, run] of now.runs) {
    const previous = before.runs.get(id);
    if (!previous || previous.state !== "running" || !currentUser() || run.user !== currentUser()) { continue; }
    const address = runLink + encodeURIComponent(id);
    if (ENDED[run.state]) { notify(`${run.name} ${ENDED[run.state]}`, host, `${id} ${run.state}`, address); }
    else if (run.stalled && !previous.stalled) { notify(`${run.name} is stalled`, `It makes no progress · ${host}`, `${id} stalled`, address); }
  }
  const free = now.free.filter((gpu) => before.wasUsed.has(gpu));
  if (free.length) {
    notify(free.length > 1 ? `GPUs ${free.join(", ")} are free` : `GPU ${free[0]} is free`, host, `free ${free.join(" ")}`, free.length > 1 ? "#/" : gpuLink + encodeURIComponent(free[0]));
  }
}

export function startNotifications() {
  isOn = readSetting(KEY) === "1";
  document.getElementById("notify").addEventListener("click", toggle);
  window.addEventListener("hashchange", () => say(""));
  label();
  feed.on(update);
  update();
}
