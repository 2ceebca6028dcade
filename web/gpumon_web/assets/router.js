// Which page is shown, by what stands behind # in the address; only that page draws.
// @ts-check
import { dashPage } from "./dash.js";
import { attribute, elements, hide, put } from "./dom.js";
import { feed } from "./feed.js";
import { startNotifications } from "./notify.js";
import { position } from "./position.js";
import { startPrinting } from "./print.js";
import { showStatus } from "./status.js";
import { theme } from "./theme.js";
import { showTitle } from "./title.js";
import { pageView } from "./view.js";

let sections = [];
let current = null;
const pages = {}; // those that were shown, by name

function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, id] = path.split("/");
  const params = new URLSearchParams(query || "");
  if (id) {
    try { params.set("id", decodeURIComponent(id)); } catch { params.set("id", id); }
  }
  return { name, params };
}

export const addressArguments = () => place().params;

// What values are of, and no figure: a change of the other arguments is none of the page.
const subject = (params, name) => {
  const section = byName(name);
  const names = section ? section.dataset.subject.split(" ") : ["id"];
  return Object.fromEntries(names.filter((one) => params.get(one)).map((one) => [one, params.get(one)]));
};

// Other arguments of the address, those that are null without: the browser's history keeps pages, and not each turn of
// the wheel. `isStep`: the way back leads to the address as it was.
export function setArguments(changes, isStep) {
  const [path, query] = (location.hash || "#/").split("?");
  const all = new URLSearchParams(query || "");
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) { all.delete(name); } else { all.set(name, value); }
  }
  const text = String(all);
  const address = text ? `${path}?${text}` : path;
  if (isStep && address !== location.hash) { history.pushState(null, "", address); } else { history.replaceState(null, "", address); }
}

// The same page with other arguments that the viewer chose.
export function goTo(changes) {
  setArguments(changes, true);
  route();
}

// An address without an id is of what was seen last on this page, and says so: as a link it leads there too.
const last = new Map();
function remember(name, params) {
  if (params.get("id")) { last.set(name, params.get("id")); return; }
  if (!last.has(name) || byName(name).dataset.needsId) { return; }
  params.set("id", last.get(name));
  const [, query] = location.hash.split("?");
  history.replaceState(null, "", `#/${name}/${encodeURIComponent(last.get(name))}${query ? `?${query}` : ""}`);
}

// The arguments of the address that hold for others like the one that is shown.
export const keptArguments = () => {
  const length = place().params.get("window");
  return length ? `?window=${encodeURIComponent(length)}` : "";
};
export const redrawPage = (isElsewhere) => {
  if (current && isElsewhere) { page(current).show(place().params); } else if (current) { page(current).about(); }
};

const byName = (name) => sections.find((section) => section.dataset.page === name);

// The section of an address: of an unknown page the first one, of a page that needs an id and has none its tab's, and
// on a machine without a GPU the one that takes the place.
function resolved({ name, params }) {
  let asked = byName(name) || sections[0];
  if (asked.dataset.needsId && !params.has("id")) { asked = byName(asked.dataset.tabOf); }
  const instead = feed.server && !feed.server.has_gpus && asked.dataset.withoutGpus;
  return { asked, section: instead ? byName(instead) : asked };
}

// A machine of one GPU has no list of them: its first page has no tab, and the mark leads to that GPU.
function single() {
  const [{ dataset: { page: first } }] = sections;
  const { home } = feed.server;
  hide(document.querySelector(`[data-tab="${first}"]`), Boolean(home) && current !== sections[0]);
  attribute(document.querySelector(".brand"), "href", home || `#/${first}`);
}

// Who opens a machine of one GPU wants to see that one.
function land() {
  if (feed.server.home && !location.hash.replace(/^#\/?/, "")) {
    history.replaceState(null, "", feed.server.home);
    return true;
  }
  return resolved(place()).section !== current;
}

function page(section) {
  const { page: name } = section.dataset;
  if (!pages[name]) { pages[name] = section.dataset.dash ? dashPage(section) : pageView(section); }
  return pages[name];
}

function route() {
  position.open(place().params);
  const { name, params } = place();
  if (byName(name)) { remember(name, params); }
  const { asked, section } = resolved({ name, params });
  for (const other of sections) { other.hidden = other !== section; }
  const shown = page(section);
  for (const tab of elements(document, "[data-tab]")) {
    if (tab.dataset.tab === asked.dataset.tabOf) { tab.setAttribute("aria-current", "page"); } else { tab.removeAttribute("aria-current"); }
  }
  const moved = current && current !== section;
  current = section;
  const notice = document.getElementById("notice");
  const unknown = name && !byName(name) ? name : "";
  hide(notice, !unknown);
  put(notice, unknown ? `No such page: "${unknown.slice(0, 40)}". This is the ${sections[0].dataset.title.toLowerCase()}.` : "");
  // The server, too, takes the first page for an unknown one, so that the question can go out before this script.
  const known = section === asked && byName(name) === asked;
  feed.open(known || section === sections[0] ? name : section.dataset.page, subject(params, section.dataset.page));
  shown.show(params);
  showTitle(shown.title);
  if (moved) { window.scrollTo(0, 0); document.getElementById("main").focus({ preventScroll: true }); }
}

function heard(news) {
  if (feed.server && land()) { route(); }
  if (feed.server) { single(); }
  showStatus();
  const shown = page(current);
  if (news.reset) { shown.about(); }
  shown.tick(news);
}

// Whether the page in place of those that need a GPU is shown.
export const isWithoutGpus = () => Boolean(current) && sections.some((section) => section.dataset.withoutGpus === current.dataset.page);

function again() {
  page(current).about();
}

// Start the page that the address names.
export function start() {
  sections = [...document.querySelectorAll("[data-page]")];
  theme.start();
  // A skip link that changed the address would lead to another page.
  document.getElementById("skip").addEventListener("click", (click) => {
    click.preventDefault();
    document.getElementById("main").focus();
  });
  theme.on(again);
  startNotifications();
  startPrinting();
  window.addEventListener("hashchange", route);
  window.addEventListener("resize", again);
  feed.on(heard);
  // Ages of old values grow although no answer comes.
  setInterval(() => { if (feed.server && !feed.isFresh() && !document.hidden) { page(current).tick(null); } }, 1000);
  showStatus();
  route();
  if (feed.server) { heard({ reset: true, delta: null, values: [], tables: new Map() }); }
}
