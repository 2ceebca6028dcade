// Light or dark, colors by their role, and the colors of people.
// @ts-check
import { attribute, make, put } from "./dom.js";
import { readSetting, saveSetting } from "./settings.js";

const KEY = "gpumon-theme";
const COLORS = 8; // of people
const DISTINCT = 5; // of these, the first ones, which differ most
const LONG = 14; // letters of a name; a longer one may be shortened
const END = 9; // letters at the end of a long name that always stay
const segmenter = new Intl.Segmenter();
const system = window.matchMedia("(prefers-color-scheme: dark)");
const listeners = [];
const places = new Map(); // by user, the number that the server has given: it stands for a color and a mark
const users = new Set(); // all users of whom this page has heard
let colors = new Map(); // by role, [red, green, blue] in the current theme

// Applies a theme; without a name, the theme of the system.
function apply(chosen) {
  if (chosen === "dark" || chosen === "light") { document.documentElement.dataset.theme = chosen; }
  else { delete document.documentElement.dataset.theme; }
  colors = new Map();
  label();
  for (const listener of listeners) { listener(); }
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : system.matches;
}

function label() {
  const button = document.getElementById("theme");
  if (!button) { return; }
  put(button, isDark() ? "☀" : "☾");
  attribute(button, "aria-label", isDark() ? "Switch to light" : "Switch to dark");
}

// The color of a role in the current theme, for a canvas: `rgb(47,111,237)`, or `rgba(…)` with an opacity.
function color(role, opacity = 1) {
  if (!colors.has(role)) {
    const probe = document.documentElement.appendChild(make("i", { hidden: true }));
    Object.assign(probe.style, { color: `var(--${role})`, forcedColorAdjust: "none" });
    colors.set(role, getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3));
    probe.remove();
  }
  const parts = colors.get(role).join(",");
  return opacity === 1 ? `rgb(${parts})` : `rgba(${parts},${opacity})`;
}

function hash(name) {
  let sum = 2166136261; // FNV-1a
  for (const letter of name) { sum = Math.imul(sum ^ letter.codePointAt(0), 16777619); }
  return sum >>> 8;
}

// The role of a user's color: the server's choice, so that it is the same on all pages, or else one by the name.
const ofUser = (name) => (name ? `p${places.has(name) ? places.get(name) % COLORS : hash(name) % DISTINCT}` : "mut");

// A class that tells apart the users who share a color, since there are more users than colors that differ.
const mark = (name) => ["", "second", "third"][Math.min(2, Math.floor((places.get(name) || 0) / COLORS))];

export const theme = {
  color, ofUser, mark, isDark,
  // Takes over the places that the server has given to users.
  setPlaces(given) { for (const [name, place] of Object.entries(given || {})) { places.set(name, place); } },
  // Adds users of whom the page has heard; returns whether any of them is new.
  addUsers(names) {
    const before = users.size;
    for (const name of names) { users.add(name); }
    return users.size > before;
  },
  users: () => [...users],
  on(listener) { listeners.push(listener); },
  // Applies another theme for a while; null ends that.
  override(other) { apply(other || readSetting(KEY)); },
  start() {
    label();
    document.getElementById("theme").addEventListener("click", () => {
      const next = isDark() ? "light" : "dark";
      saveSetting(KEY, next);
      apply(next);
    });
    system.addEventListener("change", () => apply(readSetting(KEY)));
  },
};
apply(readSetting(KEY));

// A dot in a user's color, and the name. A long name is shortened in its middle, by the style sheet, since names of a site
// often begin alike; copying, searching and screen readers get the whole name.
export function person(name) {
  const whole = name || "unknown";
  const [head, end] = splitName(whole);
  const text = end ? make("span", { class: "ends", "data-head": head, "data-end": end }, make("span", { class: "sr", text: whole })) : make("span", { text: whole });
  const chip = make("span", { class: `person ${mark(name)}`.trim(), title: end ? whole : null }, text);
  chip.style.setProperty("--c", `var(--${ofUser(name)})`);
  return chip;
}

// A long name as its head and its last letters.
function splitName(name) {
  const letters = Array.from(segmenter.segment(name), ({ segment }) => segment);
  return letters.length <= LONG ? [name, ""] : [letters.slice(0, -END).join(""), letters.slice(-END).join("")];
}

// Shares of a whole, each in its color: [{share, color, title}].
export function shareBar(parts, className = "bar") {
  const bar = make("span", { class: className, "aria-hidden": "true" });
  for (const part of parts) {
    const piece = make("i", { title: part.title });
    piece.style.width = `${Math.max(0, Math.min(1, part.share || 0)) * 100}%`;
    piece.style.background = part.opacity ? color(part.color, part.opacity) : `var(--${part.color})`;
    bar.append(piece);
  }
  return bar;
}
