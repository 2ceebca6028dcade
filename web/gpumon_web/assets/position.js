// Where in a recording this viewer is. Without a position of its own a page follows the playback of the server; with one,
// each question names it, and other viewers are not affected. It is in the address too, so that a link leads to the same moment.
// @ts-check
import { feed } from "./feed.js";
import * as format from "./format.js";
import { setArguments } from "./router.js";
import { rangeArguments } from "./tools.js";

const STANDING = 10; // s between questions while nothing moves
const LONGEST = 15;
const FURTHEST = 1e11; // s since 1970: no link names a later position
const FRAME = 0.001; // s: times come in whole milliseconds, and no two frames lie closer
const written = new Set(); // positions that this page put into the address: they are no news to it
let own = null; // { at, from, paused, speed }: the position at a time of performance.now(); null: the position of the server
let play = null; // what the server says of the recording; null: it cannot be taken elsewhere
let shown = NaN; // the time of the frame that is shown

const clamp = (time) => (play ? Math.min(Math.max(time, play.begin), play.end) : time);

function here() {
  if (!own) { return shown; }
  if (own.paused) { return own.at; }
  let time = own.at + ((performance.now() - own.from) / 1000) * own.speed;
  // A gap in which the machine slept is skipped.
  if (play && format.known(play.next) && time < play.next && time >= shown + play.wait) {
    time = play.next + (time - shown - play.wait);
  }
  return clamp(time);
}

// From now on; `jumps` where what is shown does not go on.
function go(change, jumps) {
  const speed = own ? own.speed : (play ? play.speed : 1);
  own = { at: clamp(here()), from: performance.now(), paused: own ? own.paused : false, speed, ...change };
  remember();
  if (jumps) { setArguments(rangeArguments(null)); }
  feed.renew(jumps);
}

// A link opens where it was made: without `paused` it plays from there.
function remember() {
  const at = own ? String(Math.ceil(own.at * 1000) / 1000) : null;
  written.add(at);
  setArguments({ at, speed: own ? String(own.speed) : null, paused: own && own.paused ? "1" : null });
}

export const position = {
  get isOwn() { return Boolean(own); },
  get isPaused() { return Boolean(own) && own.paused; },
  get speed() { return own ? own.speed : (play ? play.speed : 1); },
  get known() { return play; },
  here,
  // From an address: what another page of this one wrote is where the viewer was, not where he wants to be.
  open(params) {
    const at = params.get("at");
    if (at !== null && !written.has(at) && Math.abs(Number(at)) < FURTHEST && at.trim()) {
      const speed = Number(params.get("speed"));
      written.add(at);
      own = { at: Number(at), from: performance.now(), paused: params.get("paused") === "1", speed: speed > 0 && speed < 1e6 ? speed : 1 };
      return;
    }
    if (own) { remember(); }
  },
  // With an answer for the frame of `time`.
  take(recording, time) {
    if (own && !own.paused) { own = { ...own, at: here(), from: performance.now() }; }
    play = recording || null;
    shown = time;
    if (!play && own) { own = null; remember(); } // a link to a recording, of what is none
  },
  // The arguments of the next question.
  query: () => (own ? { at: String(Math.round(here() * 1000) / 1000) } : {}),
  // The same for what belongs to the values that are shown, to be put behind others.
  exact: () => (own && format.known(shown) ? `&at=${Math.round((shown + FRAME) * 1000) / 1000}` : ""),
  // Seconds until the next question; NaN: as usual.
  wait() {
    if (!own) { return NaN; }
    if (own.paused || !play || !format.known(play.next)) { return STANDING; }
    return Math.min(Math.max((shown + play.wait - here()) / own.speed, 1), LONGEST);
  },
  pause() { go({ at: own ? here() : shown + FRAME, paused: true }, !own); },
  resume() { go({ paused: false }, !own); },
  seek(time) { go({ at: clamp(time) }, true); },
  setSpeed(speed) { go({ at: own ? here() : shown + FRAME, speed }, !own); },
  rejoin() { own = null; remember(); feed.renew(true); },
};
