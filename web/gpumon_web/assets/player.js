// The bar below the head of every page of a recording: pause, seek and speed, or how far a log has been read.
// @ts-check
import { attribute, fillOnce, hide, make, put } from "./dom.js";
import { feed } from "./feed.js";
import * as format from "./format.js";
import { position } from "./position.js";

const STEPS = [[-600, "−10 min"], [-60, "−1 min"], [60, "+1 min"], [600, "+10 min"]];
const SPEEDS = [1, 2, 5, 10, 60, 300];
const SETTLES = 200; // ms after the last move of the slider
const ONCE = "A log is read from beginning to end: 'gpumon record' makes a recording of it, which can be paused and moved.";
let parts = null; // the elements of the bar
let timer = 0;
let isDragged = false;

// Calls a function and shows the position that results.
const then = (change) => (...given) => { change(...given); showPlayer(); };
const seek = then((time) => { isDragged = false; position.seek(time); });

function build(place) {
  const toggle = make("button", { class: "button toggle", click: then(() => { if (position.isPaused) { position.resume(); } else { position.pause(); } }) });
  const steps = STEPS.map(([seconds, name]) => make("button", { class: "tool step", text: name, click: () => seek(position.here() + seconds) }));
  const slider = make("input", { type: "range", class: "slider", min: "0", step: "1", "aria-label": "Position in the recording" });
  const time = make("span", { class: "time" });
  const speed = make("select", { class: "speed", "aria-label": "Speed" });
  const rejoin = make("button", { class: "button", text: "Rejoin", title: "Follow the playback of the server again", click: then(position.rejoin) });
  const problem = make("span", { class: "cut" });
  slider.addEventListener("input", () => { isDragged = true; showTime(position.known.begin + Number(slider.value)); });
  slider.addEventListener("change", () => {
    isDragged = true;
    clearTimeout(timer);
    timer = setTimeout(() => seek(position.known.begin + Number(slider.value)), SETTLES);
  });
  speed.addEventListener("change", then(() => position.setSpeed(Number(speed.value))));
  place.append(toggle, speed, make("div", { class: "tools", role: "group", "aria-label": "Move" }, ...steps), slider, time, rejoin, problem);
  return { toggle, slider, time, speed, rejoin, problem };
}

function showTime(now) {
  put(parts.time, `${format.moment(now)} of ${format.clock(position.known.end, now)}`);
  attribute(parts.slider, "aria-valuetext", format.moment(now));
}

// A log can only be read from its begin to its end.
function showLog(place, [begin, end]) {
  if (!parts) {
    const bar = make("progress", { class: "slider", "aria-label": "Position in the log" });
    parts = { bar, time: make("span", { class: "time" }) };
    place.append(bar, parts.time, make("span", { class: "mut note", text: ONCE }));
  }
  const now = Math.min(Math.max(format.known(feed.now) ? feed.now : begin, begin), end);
  parts.bar.max = end - begin;
  parts.bar.value = now - begin;
  put(parts.time, `${format.moment(now)} of ${format.clock(end, now)}`);
}

export function showPlayer() {
  const place = document.getElementById("player");
  hide(place, !position.known && !feed.log);
  if (feed.log) { showLog(place, feed.log); return; }
  if (!position.known) { return; }
  parts = parts || build(place);
  const { begin, end, problem } = position.known;
  put(parts.toggle, position.isPaused ? "Play" : "Pause");
  hide(parts.rejoin, !position.isOwn);
  attribute(parts.slider, "max", String(Math.max(1, Math.ceil(end - begin))));
  const speeds = [...new Set([...SPEEDS, position.speed])].sort((a, b) => a - b);
  fillOnce(parts.speed, speeds, () => speeds.map((one) => make("option", { value: one, text: `×${one}` })));
  parts.speed.value = String(position.speed);
  put(parts.problem, problem);
  if (isDragged) { return; }
  const now = format.known(feed.now) ? feed.now : begin;
  parts.slider.value = String(Math.round(now - begin));
  showTime(now);
}
