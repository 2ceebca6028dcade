// Dark or light, by the system until the button is pressed; and colors by their role.
// @ts-check
import { attribute, make, put } from "./dom.js";

const KEY = "gpumon-theme";
const COLORS = 8;
const USUAL = 5; // those that differ most
const NOBODY = "mut";
const LONG = 14; // letters of a name; one with more may not have room
const END = 9; // of these that always stay
const system = window.matchMedia("(prefers-color-scheme: dark)");
const listeners = [];
const placed = new Map();
const rounds = new Map();
const people = new Set();
let known = new Map();

function stored() {
  try { return localStorage.getItem(KEY); } catch { return null; }
}

function apply(chosen) {
  if (chosen === "dark" || chosen === "light") { document.documentElement.dataset.theme = chosen; }
  else { delete document.documentElement.dataset.theme; }
  known = new Map();
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

// The color of a role as the theme has it now: `#2f6fed`, or with an opacity `rgba(…)`.
function color(name, opacity) {
  if (!known.has(name)) {
    known.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  }
  const hex = known.get(name);
  if (opacity === undefined || Number(opacity) === 1) { return hex; }
  const parts = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return `rgba(${parts.join(",")},${opacity})`;
}

function slot(name) {
  let hash = 2166136261;
  for (const letter of name) { hash = Math.imul(hash ^ letter.codePointAt(0), 16777619); }
  return (hash >>> 8) % USUAL;
}

// A person has the color that the server has given, on every page and in every browser; without one, a color from the name.
function ofUser(name) {
  if (!name) { return NOBODY; }
  return `p${placed.has(name) ? placed.get(name) : slot(name)}`;
}

// `places`: of each person, a color and a mark in one number.
function give(places) {
  for (const [name, place] of Object.entries(places || {})) {
    placed.set(name, place % COLORS);
    rounds.set(name, Math.floor(place / COLORS));
  }
}

// How many had the color of a person before: there are more people than colors that differ. Marks tell them apart.
function mark(name) {
  return ["", "second", "third"][Math.min(2, rounds.get(name) || 0)];
}

function meet(names) { for (const name of names) { people.add(name); } }

export const theme = {
  color, ofUser, mark, give, meet, isDark,
  // All users that a page has named.
  met: () => [...people],
  on(listener) { listeners.push(listener); },
  // Another theme for a while; null: the previous one.
  lend(other) { apply(other || stored()); },
  start() {
    label();
    document.getElementById("theme").addEventListener("click", () => {
      const next = isDark() ? "light" : "dark";
      try { localStorage.setItem(KEY, next); } catch { /* a private window: it lasts as long as the page */ }
      apply(next);
    });
    system.addEventListener("change", () => apply(stored()));
  },
};
apply(stored());

// A dot in a person's color, and the name. A long one gives way in its middle, so that those that begin alike differ;
// what is drawn of it is the style sheet's, and what is copied, found and read out is the name itself.
export function person(name, fallback) {
  const whole = name || fallback || "unknown";
  const [head, end] = parted(whole);
  const text = end ? make("span", { class: "ends", "data-head": head, "data-end": end }, make("span", { class: "sr", text: whole })) : make("span", { text: whole });
  const chip = make("span", { class: `person ${mark(name)}`.trim(), title: end ? whole : null }, text);
  chip.style.setProperty("--c", `var(--${ofUser(name)})`);
  return chip;
}

// A long name before the letters at its end, and these; no mark is parted from its letter.
function parted(name) {
  const letters = Array.from(name);
  if (letters.length <= LONG) { return [name, ""]; }
  let at = letters.length - END;
  while (at > 0 && /[\p{M}\u200d]/u.test(letters[at])) { at -= 1; }
  return [letters.slice(0, at).join(""), letters.slice(at).join("")];
}

// Shares of a whole, each in its color: [{share, color, title}].
export function shareBar(parts, className) {
  const bar = make("span", { class: className || "bar", "aria-hidden": "true" });
  for (const part of parts) {
    const piece = make("i", { title: part.title });
    piece.style.width = `${Math.max(0, Math.min(1, part.share || 0)) * 100}%`;
    piece.style.background = part.opacity ? color(part.color, part.opacity) : `var(--${part.color})`;
    bar.append(piece);
  }
  return bar;
}
