// The address behind #: `#/PAGE/ID?ARGUMENTS`, where ID names what the page shows.
// @ts-check
import * as format from "./format.js";

// The parts of the current address: the name of the page, its arguments with the id among them, and the text of the arguments.
export function parseAddress() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, id] = path.split("/");
  const params = new URLSearchParams(query);
  if (id) {
    try { params.set("id", decodeURIComponent(id)); } catch { params.set("id", id); }
  }
  return { name, params, query };
}

export const addressArguments = () => parseAddress().params;

// Changes arguments of the address; null removes one. The browser's history gets an entry only for a step (`isStep`), so that
// the back button does not go through every zoom.
export function setArguments(changes, isStep = false) {
  const [path, query] = (location.hash || "#/").split("?");
  const all = new URLSearchParams(query || "");
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) { all.delete(name); } else { all.set(name, value); }
  }
  const text = String(all);
  const address = text ? `${path}?${text}` : path;
  if (isStep && address !== location.hash) { history.pushState(null, "", address); } else { history.replaceState(null, "", address); }
}

// The arguments that a link to another subject of the same page keeps: the window of time.
export const keptArguments = () => {
  const length = addressArguments().get("window");
  return length ? `?window=${encodeURIComponent(length)}` : "";
};

// The arguments of a time range, in seconds since 1970.
export const rangeArguments = (range) => ({ from: range && range[0].toFixed(1), to: range && range[1].toFixed(1) });
export function rangeOf(params) {
  const range = [Number(params.get("from")), Number(params.get("to"))];
  return params.has("from") && range.every(format.known) && range[0] < range[1] ? range : null;
}

// A link that came from the server; only links to pages of this view are followed.
export const pageLink = (link) => (link.startsWith("#/") ? link : "#/");
