// How things are, in the head of every page: live, stale, reconnecting, replayed or simulated, and what is wrong.
// @ts-check
import { attribute, fillOnce, hide, make, put } from "./dom.js";
import { feed } from "./feed.js";
import * as format from "./format.js";
import { showPlayer } from "./player.js";
import { position } from "./position.js";
import { isWithoutGpus } from "./router.js";
import { showTitle } from "./title.js";

const WORDS = {
  connecting: "connecting", live: "live", stale: "stale", ended: "ended", reconnecting: "reconnecting", locked: "signed out",
};
const AGAIN = "A log plays once: start 'gpumon web' with it again to see it from its begin.";
// What to do, behind what is wrong and since when.
const STEPS = {
  stale: "On the server, 'gpumon daemon status' says whether it runs, and 'gpumon daemon restart' starts it again.",
  reconnecting: "Look whether the server and your tunnel are up; else start 'gpumon web' there again.",
};

// Whether the first sample is on its way, so that nothing can be stale yet.
const waits = () => !feed.server && (feed.state === "live" || (feed.state === "stale" && feed.said.startsWith("not live yet")));

// A recording is never live: it plays, or stands.
function stateWords() {
  const { state, recorded, interval, answered } = feed;
  if (waits()) { return ["waiting", ""]; }
  if (state !== "live") { return [WORDS[state], ""]; }
  if (recorded) { return [position.isPaused ? "paused" : "playing", ` · ${format.clock(feed.now, feed.now)}`]; }
  if (!answered) { return ["not answered", ` · as of ${format.clock(feed.now, feed.now)}`]; }
  if (feed.problem) { return ["no GPU can be read", ""]; } // what the machine says of itself is of now, and no GPU is
  return ["live", ` · ${interval >= 1 ? format.duration(interval).replace(".0", "") : `${Math.round(interval * 1000)} ms`}`];
}

// The same in a word, for what is not of now.
export const stateWord = () => WORDS[feed.state];

let said = "";
let timer = 0;

export function showStatus() {
  const place = document.getElementById("live");
  place.className = `live ${waits() ? "waiting" : feed.state}${feed.state === "live" && (feed.problem || !feed.server || !feed.answered) ? " without" : ""}`;
  const [word, more] = stateWords();
  put(place, word + more);
  attribute(place, "title", feed.said);
  // Read out only when it is something else, not each second.
  if (said !== word) {
    said = word;
    put(document.getElementById("said"), word);
    document.body.dataset.state = feed.state;
  }
  attribute(document.body, "data-fresh", String(feed.isFresh()));
  attribute(document.body, "data-waits", String(waits()));
  attribute(document.body, "data-loaded", String(Boolean(feed.server)));
  attribute(document.body, "data-answered", String(feed.answered));
  attribute(document.body, "data-recorded", String(feed.recorded));
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
  const problem = document.getElementById("problem");
  const text = problemText();
  // The page of a machine without a GPU says why by itself.
  hide(problem, !text || (isProblem() && isWithoutGpus()));
  const isLocked = feed.state === "locked";
  const step = isOld() && !feed.recorded && !isLocked ? `. ${(feed.state === "stale" && feed.step) || STEPS[feed.state]}` : "";
  fillOnce(problem, text, () => [text, make("span", { class: "ago", "aria-hidden": "true" }), step, ...(isLocked ? [isOld() ? ". " : " ", signIn(), "."] : [])]);
  const ago = problem.querySelector(".ago");
  if (ago) { put(ago, counts() ? ` (${format.span(feed.silence())} ago)` : ""); }
  clearTimeout(timer);
  if (!feed.isFresh()) { timer = setTimeout(showStatus, 1000); }
}

// Name, speed and remarks of what is played: where room is short, the name loses letters, and the speed none.
function labelParts(text) {
  const [, ...parts] = /^(.*?)( (?:×[\d.e+-]+|ended))?( \(.*\))?$/s.exec(text);
  return parts.map((part, at) => part && make("span", { class: ["name", "speed", "remarks"][at], text: part })).filter(Boolean);
}

// The form is what the server answers to this very address.
function signIn() {
  const link = make("a", { href: location.hash || "#/", text: "Reload the page to sign in" });
  link.addEventListener("click", (click) => { click.preventDefault(); location.reload(); });
  return link;
}

const isOld = () => ["stale", "reconnecting", "locked"].includes(feed.state) && !feed.isFresh() && format.known(feed.now);
const isProblem = () => Boolean(feed.problem) && feed.state !== "locked" && !isOld();
const counts = () => isOld() && format.known(feed.silence());
const lastSeen = () => (isOld() ? ` Last seen ${format.clock(feed.now, feed.clock())} ${format.zone(feed.now)}`.trimEnd() : "");

// The same words as a sentence; a name in front, such as `nvidia-smi`, stays as it is written.
const sentence = (text) => `${text.replace(/^[a-z](?=[a-z]* )/, (letter) => letter.toUpperCase())}${/[.!?]$/.test(text) ? "" : "."}`;

// What is read out as an alert has no seconds in it that count up: those stand apart.
function problemText() {
  if (feed.state === "locked") { return `This browser is signed out.${lastSeen()}`; }
  if (isProblem()) { return sentence(feed.problem); } // what was wrong once is no news while nothing comes
  if (feed.state === "stale") { return `${why(feed.said)}.${lastSeen()}`; }
  if (feed.state === "ended") { return `The recording has ended. Its last values are from ${format.moment(feed.now)}.${position.known ? "" : ` ${AGAIN}`}`; }
  if (feed.state === "reconnecting" && (!feed.server || !feed.isFresh())) {
    return `gpumon web does not answer. This page keeps trying.${lastSeen()}`;
  }
  if (feed.state === "live" && !feed.server) { return "Waiting for the first sample."; }
  return feed.view.unread || (feed.leftOut && sentence(feed.leftOut));
}

// The state without its seconds: `Stale: the daemon is silent`.
function why(words) {
  const text = words.replace(/:? last seen .*$/, "").replace(/ (\S+ )?\S+ ago$/, "");
  const whole = text === "stale" ? "stale: the daemon is silent" : text;
  return whole[0].toUpperCase() + whole.slice(1);
}
