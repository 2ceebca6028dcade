// Where in a recording this viewer is. Without a position of its own, a page follows the playback of the server. With one,
// each request names it, and other viewers are not affected. It is in the address too, so that a link leads to the same moment.
// @ts-check
import { rangeArguments, setArguments } from "./address.js";
import { feed } from "./feed.js";
import * as format from "./format.js";

const PAUSED_WAIT = 10; // s between requests while nothing moves
const LONGEST_WAIT = 15; // s
const LIMIT = 1e11; // s since 1970: a later position in a link is ignored
const FRAME = 0.001; // s: times are whole milliseconds, and no two frames have the same
const written = new Set(); // positions that this page has put into the address
let own = null; // { at, from, paused, speed }: the position `at` at the time `from` of performance.now(); null without one
let recording = null; // the server's description of the recording; null if it has no positions
let shown = NaN; // the time of the frame that is shown

const clamp = (time) => (recording ? Math.min(Math.max(time, recording.begin), recording.end) : time);
const speed = () => (own || recording || { speed: 1 }).speed;

function here() {
  if (!own) { return shown; }
  if (own.paused) { return own.at; }
  let time = own.at + ((performance.now() - own.from) / 1000) * own.speed;
  // A gap of the recording is skipped after `wait` seconds.
  if (recording && format.known(recording.next) && time < recording.next && time >= shown + recording.wait) {
    time = recording.next + (time - shown - recording.wait);
  }
  return clamp(time);
}

// Changes the position from now on. `jumps`: what comes next does not continue what is shown.
function move(change, jumps) {
  own = { at: clamp(here()), from: performance.now(), paused: Boolean(own) && own.paused, speed: speed(), ...change };
  writeAddress();
  if (jumps) { setArguments(rangeArguments(null)); }
  feed.renew(jumps);
}

// A link opens where it was made, and plays from there unless it is paused.
function writeAddress() {
  const at = own ? String(Math.ceil(own.at * 1000) / 1000) : null;
  written.add(at);
  setArguments({ at, speed: own ? String(own.speed) : null, paused: own && own.paused ? "1" : null });
}

export const position = {
  get isOwn() { return Boolean(own); },
  get isPaused() { return Boolean(own) && own.paused; },
  get speed() { return speed(); },
  get known() { return recording; },
  here,
  // Takes over the position of an address, unless this page has written it itself: that one is in the past.
  open(params) {
    const at = params.get("at");
    if (at !== null && !written.has(at) && Math.abs(Number(at)) < LIMIT && at.trim()) {
      const wanted = Number(params.get("speed"));
      written.add(at);
      own = { at: Number(at), from: performance.now(), paused: params.get("paused") === "1", speed: wanted > 0 && wanted < 1e6 ? wanted : 1 };
    } else if (own) { writeAddress(); }
  },
  // Takes over what an answer says of the recording, and the time of its frame.
  update(description, time) {
    if (own && !own.paused) { own = { ...own, at: here(), from: performance.now() }; }
    recording = description || null;
    shown = time;
    if (!recording && own) { own = null; writeAddress(); } // the link was made for a recording, and this is none
  },
  // The arguments of the next request for the newest values.
  query: () => (own ? { at: String(Math.round(here() * 1000) / 1000) } : {}),
  // The same, at the end of an address, of requests that belong to the frame that is shown.
  exact: () => (own && format.known(shown) ? `&at=${Math.round((shown + FRAME) * 1000) / 1000}` : ""),
  // Seconds until the next request; NaN means the usual interval.
  wait() {
    if (!own) { return NaN; }
    if (own.paused || !recording || !format.known(recording.next)) { return PAUSED_WAIT; }
    return Math.min(Math.max((shown + recording.wait - here()) / own.speed, 1), LONGEST_WAIT);
  },
  pause() { move({ at: own ? here() : shown + FRAME, paused: true }, !own); },
  resume() { move({ paused: false }, !own); },
  seek(time) { move({ at: clamp(time) }, true); },
  setSpeed(wanted) { move({ at: own ? here() : shown + FRAME, speed: wanted }, !own); },
  rejoin() { own = null; writeAddress(); feed.renew(true); },
};
