// Shows the page that the address names. Only that page is drawn.
// @ts-check
import { parseAddress, setArguments } from "./address.js";
import { dashPage } from "./dash.js";
import { attribute, elements, hide, put } from "./dom.js";
import { feed } from "./feed.js";
import { closeMenusElsewhere } from "./menu.js";
import { startNotifications } from "./notify.js";
import { position } from "./position.js";
import { startPrinting } from "./print.js";
import { showStatus, showTitle } from "./status.js";
import { theme } from "./theme.js";
import { pageView } from "./view.js";

let sections = [];
let current = null; // the section that is shown
const pages = {}; // pages that were shown, by name
const lastIds = new Map(); // by page, the id that was shown last

const sectionOf = (name) => sections.find((section) => section.dataset.page === name);

// The arguments of the address for which the server sends other values.
function subject(params, name) {
  const section = sectionOf(name);
  const names = section ? section.dataset.subject.split(" ") : ["id"];
  return Object.fromEntries(names.filter((one) => params.get(one)).map((one) => [one, params.get(one)]));
}

// Shows the same page with other arguments that the viewer chose.
export function goTo(changes) {
  setArguments(changes, true);
  route();
}

// Draws the page again; `isElsewhere`: its arguments changed.
export function redrawPage(isElsewhere = false) {
  if (!current) { return; }
  if (isElsewhere) { pageOf(current).show(parseAddress().params); } else { pageOf(current).about(); }
}

// An address without an id gets the id that this page showed last, so that the address can be shared.
function completeId({ name, params, query }) {
  if (params.get("id")) { lastIds.set(name, params.get("id")); return; }
  if (!lastIds.has(name) || sectionOf(name).dataset.needsId) { return; }
  params.set("id", lastIds.get(name));
  history.replaceState(null, "", `#/${name}/${encodeURIComponent(lastIds.get(name))}${query ? `?${query}` : ""}`);
}

// The section that an address asks for, and the one that is shown: the first one for an unknown page, the list for a page
// that needs an id and has none, and on a machine without a GPU the page that says so.
function resolve({ name, params }) {
  let asked = sectionOf(name) || sections[0];
  if (asked.dataset.needsId && !params.has("id")) { asked = sectionOf(asked.dataset.tabOf); }
  const instead = feed.server && !feed.server.has_gpus && asked.dataset.withoutGpus;
  return { asked, section: instead ? sectionOf(instead) : asked };
}

// On a machine with one GPU the page of that GPU is the first one: the list has no tab, and the logo leads to the GPU.
function showHome() {
  const [{ dataset: { page: first } }] = sections;
  const { home } = feed.server;
  hide(document.querySelector(`[data-tab="${first}"]`), Boolean(home) && current !== sections[0]);
  attribute(document.querySelector(".brand"), "href", home || `#/${first}`);
}

// Whether another page has to be shown, now that the server has told which GPUs there are.
function isMisplaced() {
  if (feed.server.home && !location.hash.replace(/^#\/?/, "")) {
    history.replaceState(null, "", feed.server.home);
    return true;
  }
  return resolve(parseAddress()).section !== current;
}

function pageOf(section) {
  const { page: name } = section.dataset;
  pages[name] ??= section.dataset.dash ? dashPage(section) : pageView(section);
  return pages[name];
}

function route() {
  position.open(parseAddress().params);
  const address = parseAddress();
  const { name, params } = address;
  if (sectionOf(name)) { completeId(address); }
  const { asked, section } = resolve(address);
  for (const other of sections) { other.hidden = other !== section; }
  const shown = pageOf(section);
  for (const tab of elements(document, "[data-tab]")) {
    if (tab.dataset.tab === asked.dataset.tabOf) { tab.setAttribute("aria-current", "page"); } else { tab.removeAttribute("aria-current"); }
  }
  const isOther = current && current !== section;
  current = section;
  const notice = document.getElementById("notice");
  const unknown = name && !sectionOf(name) ? name : "";
  hide(notice, !unknown);
  put(notice, unknown ? `No such page: "${unknown.slice(0, 40)}". This is the ${sections[0].dataset.title.toLowerCase()}.` : "");
  // The server resolves an unknown page to the first one as well, so that the request need not wait for this script.
  const isKnown = section === asked && sectionOf(name) === asked;
  feed.open(isKnown || section === sections[0] ? name : section.dataset.page, subject(params, section.dataset.page));
  shown.show(params);
  showTitle(shown.title);
  if (isOther) { window.scrollTo(0, 0); document.getElementById("main").focus({ preventScroll: true }); }
}

function update(news) {
  if (feed.server && isMisplaced()) { route(); }
  if (feed.server) { showHome(); }
  showStatus();
  const shown = pageOf(current);
  if (news.reset) { shown.about(); }
  shown.tick(news);
}

// Whether the page is shown that says why no GPU can be read.
export const isWithoutGpus = () => Boolean(current) && sections.some((section) => section.dataset.withoutGpus === current.dataset.page);

// Shows the page of the address, and follows the address and the feed from now on.
export function start() {
  sections = elements(document, "[data-page]");
  theme.start();
  // A plain skip link would change the address to another page.
  document.getElementById("skip").addEventListener("click", (click) => {
    click.preventDefault();
    document.getElementById("main").focus();
  });
  const redraw = () => redrawPage();
  theme.on(redraw);
  startNotifications();
  startPrinting();
  closeMenusElsewhere();
  window.addEventListener("hashchange", route);
  window.addEventListener("resize", redraw);
  feed.on(update);
  // Ages of old values grow although no answer comes.
  setInterval(() => { if (feed.server && !feed.isFresh() && !document.hidden) { pageOf(current).tick(null); } }, 1000);
  showStatus();
  route();
  if (feed.server) { update({ reset: true, delta: null, values: [], tables: new Map() }); }
}
