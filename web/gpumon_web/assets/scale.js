// Axes of charts: values with their unit, ticks at round values, and ticks at round times of the viewer's zone.
// @ts-check
import { feed } from "./feed.js";
import * as format from "./format.js";

const DAY = 86400;
const LONGEST = DAY + 7200; // s of a day on which clocks are put back, at most
const SHIFT = 1800; // s by which clocks are put back, at least
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY, 91 * DAY, 364 * DAY];
const FINE = [1, 2, 5].flatMap((one) => [one / 100, one / 10]).sort((a, b) => a - b);
const ROOM = 92; // px between two times
const TICKS = 3; // of a panel, about
const MOST = 12; // ticks of a panel: adding a step to a huge number may not change it

function binary(top, behind) {
  let step = 0;
  let size = 1;
  while (top / size >= 1000 && step < format.BINARY.length - 2) { size *= 1024; step += 1; }
  return [1 / size, ` ${format.BINARY[step]}${behind}`];
}
function energies(top) { return top >= 3.6e6 ? [1 / 3.6e6, " kWh"] : top >= 3600 ? [1 / 3600, " Wh"] : [1, " J"]; }
function lengths(top) { return top >= 7200 ? [1 / 3600, " h"] : top >= 120 ? [1 / 60, " min"] : top > 0 && top < 1 ? [1000, " ms"] : [1, " s"]; }

// `write` is a value with its unit; `axis(top)` the factor and the unit of an axis that ends at `top`; `least` the least span of an
// axis, so that one step of the sensor does not fill it.
const UNITS = {
  ratio: { write: format.percent, axis: () => [100, " %"] },
  bytes: { write: format.bytes, axis: (top) => binary(top, "") },
  bytes_per_second: { write: (value) => (format.known(value) ? `${format.bytes(value)}/s` : format.MISSING), axis: (top) => binary(top, "/s") },
  watts: { write: format.watts, axis: () => [1, " W"] },
  celsius: { write: format.celsius, axis: () => [1, " °C"], least: 10 },
  hertz: { write: format.gigahertz, axis: () => [1e-9, " GHz"] },
  joules: { write: (value) => format.joules(value), axis: energies },
  seconds: { write: format.brief, axis: lengths },
  plain: { write: format.plain, axis: () => [1, ""] },
};
UNITS.joules_per_second = UNITS.watts;
UNITS.seconds_per_second = UNITS.ratio;
const unit = (name) => UNITS[name] || UNITS.plain;

// The round step for about `count` ticks over a span.
function stepOf(span, count) {
  const rough = span / count;
  const size = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((one) => one * size).find((one) => one >= rough * (1 - 1e-9)) || rough;
}

// Ticks from a low to a high value as {value, text}; the highest has the unit. `top`: the largest value that is possible.
function valueTicks(name, low, high, top) {
  if (!(high > low)) { return []; }
  const [factor, suffix] = unit(name).axis(Math.max(Math.abs(low), Math.abs(high)));
  const [from, to] = [low * factor, high * factor];
  const few = stepOf(to - from, TICKS);
  const isOne = Math.floor(to / few) - Math.ceil(from / few) < 1; // a single tick would be no scale
  const step = name === "ratio" && low === 0 && top === 1 ? 50 : isOne ? stepOf(to - from, 2 * TICKS) : few;
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const ticks = [];
  for (let at = Math.ceil(from / step - 1e-9); at * step <= to * (1 + 1e-9) && ticks.length < MOST; at += 1) {
    ticks.push({ value: (at * step) / factor, text: write(at * step, digits) });
  }
  // The largest possible value, as the size of a memory, replaces the round number next to it.
  if (format.known(top) && top <= high && ticks.length && name !== "ratio") {
    while (ticks.length && (top - ticks[ticks.length - 1].value) * factor < step * (3 / 4)) { ticks.pop(); }
    ticks.push({ value: top, text: write(top * factor, (top * factor) % 1 === 0 ? 0 : 1) });
  }
  if (ticks.length) { ticks[ticks.length - 1].text += suffix; }
  return ticks;
}

function write(value, digits) {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e7 || size < 1e-4)) { return value.toExponential(1).replace(".0e", "e").replace(/-/g, "−").replace("e+", "e"); }
  return format.signed(format.grouped(value.toFixed(Math.min(digits, 6))));
}

const clock = (at, step) => {
  const text = `${format.two(at.getHours())}:${format.two(at.getMinutes())}`;
  return step < 60 ? `${text}:${format.two(at.getSeconds())}` : text;
};
const date = (at) => `${at.getDate()} ${format.MONTHS[at.getMonth()]}`;

// Ticks at round times of the viewer's zone, in seconds since 1970; at the begin of a day, its date.
function timeTicks(from, to, pixels, room) {
  if (!(to > from) || pixels <= 0) { return []; }
  const least = ((to - from) * (room || ROOM)) / pixels; // s between two ticks
  const fine = FINE.find((one) => one >= least);
  if (fine) {
    const digits = fine < 1 / 20 ? 2 : 1;
    return multiples(from, to, fine).map((value) => ({ value, text: `${clock(new Date(Math.floor(value) * 1000), 1)}${(value - Math.floor(value)).toFixed(digits).slice(1)}` }));
  }
  const step = STEPS.find((one) => one >= least) || Math.ceil(least / (364 * DAY)) * 364 * DAY;
  const ticks = [];
  const add = (at, text) => {
    const value = at.getTime() / 1000;
    const last = ticks.length ? ticks[ticks.length - 1].value : -Infinity;
    if (value >= from && value <= to && value > last) { ticks.push({ value, text }); } // an hour that the clocks skip is the next one
  };
  for (const day of days(from, to, Math.max(1, step / DAY))) {
    add(day, to - from > 300 * DAY ? `${date(day)} ${day.getFullYear()}` : date(day));
    const next = new Date(day.getFullYear(), day.getMonth(), day.getDate() + 1);
    for (let second = step; second < LONGEST; second += step) {
      // Short steps count seconds, since an hour that is repeated has each time twice; long steps follow the clock.
      const at = step <= SHIFT ? new Date(day.getTime() + second * 1000) : new Date(day.getFullYear(), day.getMonth(), day.getDate(), 0, 0, second);
      if (at >= next || at.getTime() > to * 1000) { break; }
      add(at, clock(at, step));
    }
  }
  return ticks;
}

// The begins of days up to a time, so many days apart, from the last one before `from`.
function days(from, to, apart) {
  const day = new Date(from * 1000);
  day.setHours(0, 0, 0, 0);
  const number = Math.round((day.getTime() / 1000 - day.getTimezoneOffset() * 60) / DAY); // since 1970
  day.setDate(day.getDate() - (number % apart));
  const all = [];
  for (; day.getTime() <= to * 1000; day.setDate(day.getDate() + apart)) { all.push(new Date(day)); }
  return all;
}

const multiples = (from, to, step) => Array.from({ length: Math.max(0, Math.floor(to / step) - Math.ceil(from / step) + 1) }, (_, at) => (Math.ceil(from / step) + at) * step);

// Ticks at whole numbers, for epochs.
function wholeTicks(from, to, pixels) {
  const step = Math.max(1, stepOf(to - from, Math.max(2, pixels / ROOM)));
  return multiples(from, to, step).map((value) => ({ value, text: format.grouped(String(value)) }));
}

// Horizontal axes: `ticks(from, to, pixels)`, a `place` on it in words, and the `name` at its left.
export const axes = {
  time: { ticks: timeTicks, place: (value) => axisScale.instant(value), name: (from) => axisScale.day(from) },
  epoch: { ticks: wholeTicks, place: (value) => `epoch ${format.grouped(String(Math.round(value)))}`, name: () => "epoch" },
};

export const axisScale = {
  ticks: valueTicks,
  write: (name, value) => unit(name).write(value),
  least: (name) => unit(name).least || 0,
  // A moment with its seconds, and with its date unless that is today.
  instant(seconds) {
    const at = new Date(seconds * 1000);
    if (!format.known(seconds) || Number.isNaN(at.getTime())) { return format.MISSING; }
    const now = new Date((format.known(feed.now) ? feed.now : seconds) * 1000);
    const today = at.toDateString() === now.toDateString();
    return today ? clock(at, 1) : `${format.DAYS[at.getDay()]} ${date(at)} ${clock(at, 1)}`;
  },
  day(seconds) {
    const at = new Date(seconds * 1000);
    return Number.isNaN(at.getTime()) ? "" : `${format.DAYS[at.getDay()]} ${date(at)}`;
  },
};
