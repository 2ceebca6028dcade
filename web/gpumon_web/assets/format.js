// Numbers, units and times as text, as `gpumon/model/units.py` writes them.
// @ts-check

export const MISSING = "–";
export const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
export const known = (value) => typeof value === "number" && Number.isFinite(value);
export const two = (value) => String(value).padStart(2, "0");

// A number with so many digits behind the point, as Python writes it: halfway between two numbers, the even one is taken.
function fixed(value, digits) {
  const text = value.toFixed(digits);
  const tail = value.toFixed(digits + 25).slice(digits ? -25 : -26).replace(".", "");
  if (!/^50*$/.test(tail) || Number(text[text.length - 1]) % 2 === 0) { return text; }
  const whole = value.toFixed(digits + 25);
  return whole.slice(0, digits ? whole.length - 25 : whole.length - 26);
}

// A number with a minus sign instead of a hyphen.
export const signed = (text) => text.replace(/^-/, "−");
export const grouped = (text) => text.replace(/^-?\d+/, (whole) => whole.replace(/\B(?=(\d{3})+$)/g, ","));

// As Python's `.2e`: an exponent has two digits.
const exponent = (text) => text.replace(/e([+-])(\d)$/, "e$10$2");
// As Python's `.4g` for numbers below 10,000.
function general(value) {
  const size = value === 0 ? 0 : Math.floor(Math.log10(Math.abs(value)));
  const digits = Math.max(0, 3 - size);
  const text = fixed(value, digits);
  return digits ? text.replace(/\.?0+$/, "") : text;
}

export function bytes(value) {
  if (!known(value)) { return MISSING; }
  let step = 0;
  while (Math.abs(value) >= 999.5 && step < BINARY.length - 1) { value /= 1024; step += 1; }
  return `${fixed(value, step === 0 || value >= 99.95 ? 0 : 1)} ${BINARY[step]}`;
}

export function duration(seconds) {
  if (!known(seconds)) { return MISSING; }
  const whole = Number(fixed(seconds, 0));
  if (whole < 60) { return `${fixed(seconds, seconds >= 9.95 || whole === 0 ? 0 : 1)} s`; }
  if (whole < 3600) { return `${Math.floor(whole / 60)}:${two(whole % 60)}`; }
  if (whole < 86400) {
    return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  }
  return `${Math.floor(whole / 86400)} d ${Math.floor(whole / 3600) % 24} h`;
}

// The same with milliseconds for less than a second, as epochs of small trainings take: `420 ms`.
export function brief(seconds) {
  return seconds > 0 && seconds * 1000 < 999.5 ? `${fixed(seconds * 1000, seconds * 1000 < 9.5 ? 1 : 0)} ms` : duration(seconds);
}

// In words, for sentences: `42 min`, `2 h 50 min`, `3 d 4 h`.
export function span(seconds) {
  if (!known(seconds)) { return MISSING; }
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1) { return `${Math.max(0, Math.floor(seconds))} s`; }
  if (minutes < 60) { return `${minutes} min`; }
  const [size, large, step, small] = minutes < 1440 ? [60, "h", 1, "min"] : [1440, "d", 60, "h"];
  const rest = Math.floor((minutes % size) / step);
  return `${Math.floor(minutes / size)} ${large}${rest ? ` ${rest} ${small}` : ""}`;
}

// The same with parts of a second, unless it is a whole number of them: `1.5 s`, `85 ms`.
export function short(seconds) {
  return seconds < 60 && !Number.isInteger(seconds) ? brief(seconds).replace(".0 ", " ") : span(seconds);
}

// An energy; in a column, in the unit of its `largest` value. An energy that is too small for that is `<0.01 Wh`, and one that is
// too large, as a sum, has its own unit.
const unit = (value) => (value >= 3.6e6 ? 2 : value >= 3600 ? 1 : 0);
export function joules(value, largest) {
  if (!known(value)) { return MISSING; }
  const isColumn = known(largest);
  const suited = isColumn && unit(value) <= unit(largest) ? largest : value; // the value whose unit is used
  let [size, name, digits] = [1, "J", 0];
  if (suited >= 3.6e6) { [size, name, digits] = [3.6e6, "kWh", !isColumn ? 2 : suited < 3.6e7 ? 3 : suited < 3.6e8 ? 2 : 1]; }
  else if (suited >= 3600) { [size, name, digits] = [3600, "Wh", isColumn && suited < 3.6e4 ? 2 : 1]; }
  const isLess = isColumn && value > 0 && value < (size * 10 ** -digits) / 2;
  return `${isLess ? `<${fixed(10 ** -digits, digits)}` : grouped(fixed(value / size, digits))} ${name}`;
}

// The word for NaN or an infinity that a training logged; empty for any other value. They come as text, since they are not missing.
const ODD = { NaN: "NaN", Infinity: "∞", "-Infinity": "−∞" };
export const odd = (value) => (typeof value === "string" && Object.hasOwn(ODD, value) ? ODD[value] : "");

// A number that a training logged.
export function plain(value) {
  return signed(bare(value));
}

function bare(value) {
  if (odd(value)) { return odd(value); }
  if (!known(value)) { return MISSING; }
  if (value !== 0 && !(Math.abs(value) >= 1e-3 && Math.abs(value) < 1e6)) { return exponent(value.toExponential(2)); }
  return Math.abs(value) >= 9999.5 ? fixed(value, 0) : general(value);
}

// The same in a column: with trailing zeros, so that the decimal points of most rows are below each other; a whole number has none.
export function padded(value) {
  const size = Math.abs(value);
  if (!known(value) || Number.isInteger(value) || size < 1e-3 || size >= 1e4) { return plain(value); }
  const places = Math.max(0, 3 - Math.floor(Math.log10(size)));
  const text = fixed(value, places);
  return signed(places && text.replace(/^-?0*\.?0*/, "").replace(".", "").length > 4 ? fixed(value, places - 1) : text); // 999.96
}

export function moment(seconds) {
  const at = new Date(seconds * 1000);
  if (!known(seconds) || Number.isNaN(at.getTime())) { return MISSING; }
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

// The name of the viewer's time zone at a moment: `UTC`, `GMT+2`.
export function zone(seconds) {
  const at = new Date(seconds * 1000);
  if (!known(seconds) || Number.isNaN(at.getTime())) { return ""; }
  const part = new Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts(at).find(({ type }) => type === "timeZoneName");
  return part ? part.value : "";
}

// A time of day, with its date if it is not within 12 hours.
export function clock(seconds, now) {
  const text = moment(seconds);
  return Math.abs(now - seconds) < 43200 ? text.slice(11) : text;
}

export function age(seconds, now) {
  const past = now - seconds;
  if (!known(past)) { return MISSING; }
  if (past < -60 || past >= 86400) { return when(seconds, now); }
  if (past < 60) { return "just now"; }
  return past < 3600 ? `${Math.floor(past / 60)} min ago` : `${Math.floor(past / 3600)} h ago`;
}

// For a list: `today 20:24`, `Fri 23:51`, `18 Nov 09:10`.
export const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
export const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
export function when(seconds, now) {
  const [at, today] = [new Date(seconds * 1000), new Date(now * 1000)];
  if (!known(seconds) || Number.isNaN(at.getTime())) { return MISSING; }
  const time = `${two(at.getHours())}:${two(at.getMinutes())}`;
  if (at.toDateString() === today.toDateString()) { return `today ${time}`; }
  const days = (today.getTime() - at.getTime()) / 86400000;
  if (days > 0 && days < 6) { return `${DAYS[at.getDay()]} ${time}`; }
  const year = at.getFullYear() === today.getFullYear() ? "" : ` ${at.getFullYear()}`;
  return `${at.getDate()} ${MONTHS[at.getMonth()]}${year} ${time}`;
}

// A sentence in which no line ends between a number and its unit.
const UNITS = [...BINARY, "%", "°C", "GHz", "W", "kW", "J", "Wh", "kWh", "ms", "s", "min", "h", "d"];
const BETWEEN = new RegExp(`(\\d) (?=(?:${UNITS.join("|")})(?!\\w))`, "g");
export const unbroken = (text) => text.replace(BETWEEN, "$1\u00a0");

export const percent = (value) => (known(value) ? `${fixed(value * 100, 0)} %` : MISSING);
export const watts = (value) => (known(value) ? `${grouped(fixed(value, 0))} W` : MISSING);
export const celsius = (value) => (known(value) ? `${signed(fixed(value, 0))} °C` : MISSING);
export const gigahertz = (value) => (known(value) ? `${fixed(value / 1e9, 2)} GHz` : MISSING);
export const count = (value) => (known(value) ? grouped(fixed(value, 0)) : MISSING);
