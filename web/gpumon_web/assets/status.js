// The state of the data, in the head of every page and in the title of the tab: live, stale, reconnecting, replayed or
// simulated, and what is wrong.
// @ts-check
import { attribute, fillOnce, hide, make, put } from "./dom.js";
import { feed } from "./feed.js";
import * as format from "./format.js";
import { showPlayer } from "./player.js";
import { position } from "./position.js";
import { isWithoutGpus } from "./router.js";

const WORDS = {
  connecting: "connecting", live: "live", stale: "stale", ended: "ended", reconnecting: "reconnecting", locked: "signed out",
};
const AGAIN = "A log plays once: start 'gpumon web' with it again to see it from its begin.";
// What the viewer can do, by state.
const STEPS = {
  stale: "On the server, 'gpumon daemon status' says whether it runs, and 'gpumon daemon restart' starts it again.",
  reconnecting: "Look whether the server and your tunnel are up; else start 'gpumon web' there again.",
};
const TITLE_LENGTH = 80; // letters of each part of the tab's title: a run may have any name

let announced = "";
let timer = 0;
let pageTitle = "";

// Whether the first sample is still to come, so that nothing can be stale yet.
const waits = () => !feed.server && (feed.state === "live" || (feed.state === "stale" && feed.said.startsWith("not live yet")));

// The state in a word, and what stands behind it. A recording is never live: it plays or is paused.
function stateWords() {
  const { state, recorded, interval, answered } = feed;
  if (waits()) { return ["waiting", ""]; }
  if (state !== "live") { return [WORDS[state], ""]; }
  if (recorded) { return [position.isPaused ? "paused" : "playing", ` · ${format.clock(feed.now, feed.now)}`]; }
  if (!answered) { return ["not answered", ` · as of ${format.clock(feed.now, feed.now)}`]; }
  if (feed.problem) { return ["no GPU can be read", ""]; } // the machine is read now, but none of its GPUs
  return ["live", ` · ${interval >= 1 ? format.duration(interval).replace(".0", "") : `${Math.round(interval * 1000)} ms`}`];
}

export function showStatus() {
  const live = document.getElementById("live");
  live.className = `live ${waits() ? "waiting" : feed.state}${feed.state === "live" && (feed.problem || !feed.server || !feed.answered) ? " without" : ""}`;
  const [word, more] = stateWords();
  put(live, word + more);
  attribute(live, "title", feed.said);
  // Screen readers announce a change of the state, and not the time that follows it.
  if (announced !== word) {
    announced = word;
    put(document.getElementById("said"), word);
    document.body.dataset.state = feed.state;
  }
  const flags = { fresh: feed.isFresh(), waits: waits(), loaded: Boolean(feed.server), answered: feed.answered, recorded: feed.recorded };
  for (const [name, value] of Object.entries(flags)) { attribute(document.body, `data-${name}`, String(value)); }
  showPlayer();
  showTitle();
  const label = document.getElementById("label");
  hide(label, !feed.label);
  fillOnce(label, feed.label, () => labelParts(feed.label));
  attribute(label, "title", feed.label);
  const host = document.getElementById("hostname");
  const name = (feed.server && feed.server.hostname) || "";
  hide(host, !name);
  put(host, name);
  showProblem();
  clearTimeout(timer);
  if (!feed.isFresh()) { timer = setTimeout(showStatus, 1000); }
}

function showProblem() {
  const problem = document.getElementById("problem");
  const text = problemText();
  hide(problem, !text || (isProblem() && isWithoutGpus())); // the page of a machine without a GPU says why itself
  const isLocked = feed.state === "locked";
  const step = isOld() && !feed.recorded && !isLocked ? `. ${(feed.state === "stale" && feed.step) || STEPS[feed.state]}` : "";
  fillOnce(problem, text, () => [text, make("span", { class: "ago", "aria-hidden": "true" }), step, ...(isLocked ? [isOld() ? ". " : " ", signInLink(), "."] : [])]);
  const ago = problem.querySelector(".ago");
  if (ago) { put(ago, isOld() && format.known(feed.silence()) ? ` (${format.span(feed.silence())} ago)` : ""); }
}

// Name, speed and remarks of a recording: if there is little room, the name is shortened and the speed is not.
function labelParts(text) {
  const [, ...parts] = /^(.*?)( (?:×[\d.e+-]+|ended))?( \(.*\))?$/s.exec(text);
  return parts.map((part, at) => part && make("span", { class: ["name", "speed", "remarks"][at], text: part })).filter(Boolean);
}

// The server answers this very address with the sign-in form.
const signInLink = () => make("a", {
  href: location.hash || "#/", text: "Reload the page to sign in", click: (click) => { click.preventDefault(); location.reload(); },
});

const isOld = () => ["stale", "reconnecting", "locked"].includes(feed.state) && !feed.isFresh() && format.known(feed.now);
const isProblem = () => Boolean(feed.problem) && feed.state !== "locked" && !isOld();
const lastSeen = () => (isOld() ? ` Last seen ${format.clock(feed.now, feed.clock())} ${format.zone(feed.now)}`.trimEnd() : "");

// Words as a sentence. A first word with a hyphen or digits, such as `nvidia-smi`, is a name and stays as it is.
const sentence = (text) => `${text.replace(/^[a-z](?=[a-z]* )/, (letter) => letter.toUpperCase())}${/[.!?]$/.test(text) ? "" : "."}`;

// The text of the alert. Seconds that count up are no part of it, since an alert is read out whenever it changes.
function problemText() {
  if (feed.state === "locked") { return `This browser is signed out.${lastSeen()}`; }
  if (isProblem()) { return sentence(feed.problem); }
  if (feed.state === "stale") { return `${reason(feed.said)}.${lastSeen()}`; }
  if (feed.state === "ended") { return `The recording has ended. Its last values are from ${format.moment(feed.now)}.${position.known ? "" : ` ${AGAIN}`}`; }
  if (feed.state === "reconnecting" && (!feed.server || !feed.isFresh())) {
    return `gpumon web does not answer. This page keeps trying.${lastSeen()}`;
  }
  if (feed.state === "live" && !feed.server) { return "Waiting for the first sample."; }
  return feed.view.unread || (feed.leftOut && sentence(feed.leftOut));
}

// The words of the server for a stale state without their seconds: `Stale: the daemon is silent`.
function reason(words) {
  const text = words.replace(/:? last seen .*$/, "").replace(/ (\S+ )?\S+ ago$/, "");
  const whole = text === "stale" ? "stale: the daemon is silent" : text;
  return whole[0].toUpperCase() + whole.slice(1);
}

// Sets the title of the tab: the most important value of the page, after the state if that value is old. `name` is the title
// of a page that is shown from now on.
export function showTitle(name = "") {
  pageTitle = name || pageTitle;
  const tab = feed.value("tab");
  const isFresh = feed.isFresh() && !["reconnecting", "locked"].includes(feed.state);
  const value = (tab && (isFresh ? tab.text : tab.old)) || pageTitle;
  const state = feed.server && !isFresh ? WORDS[feed.state] : feed.recorded ? "replay" : "";
  const title = [state, value, (feed.server && feed.server.hostname) || "gpumon"].filter(Boolean).map((part) => part.slice(0, TITLE_LENGTH)).join(" · ");
  if (pageTitle && document.title !== title) { document.title = title; }
}
