// Values as text or elements, by kind. Only text, and links to pages, enter the page.
// @ts-check
import { attribute, make, put, putValue, replaceChildren } from "./dom.js";
import { feed } from "./feed.js";
import * as format from "./format.js";
import { dayStrip, filters, gpuTiles, isOpened, opener, ownGpus, setOpened } from "./groups.js";
import { nodeMap } from "./nodes.js";
import { tickBox, tickedActions } from "./picks.js";
import { goTo, keptArguments } from "./router.js";
import { drawSparkline } from "./spark.js";
import { holderStrip } from "./strip.js";
import { person, shareBar, theme } from "./theme.js";

const WINDOW = 600; // s, of small charts
const now = () => (format.known(feed.now) ? feed.now : Date.now() / 1000);
const absent = (value) => value === null || value === undefined;
// Whether nothing is known of now; the end of a recording is as it was.
const isOld = () => !feed.isFresh() && feed.state !== "ended";

const texts = {
  text: words, mono: (value) => value || format.MISSING,
  count: format.count, percent: format.percent, bytes: format.bytes, watts: format.watts, celsius: format.celsius, gigahertz: format.gigahertz,
  joules: (value, node) => energy(value, node.dataset.most ? feed.value(node.dataset.most) : undefined), duration: format.brief, span: lasted,
  elapsed: (value) => (!format.known(value) ? format.MISSING : isOld() ? `since ${format.when(value, Date.now() / 1000)}` : format.span(now() - value)), age: (value) => format.age(value, now()),
  when: (value, node) => { attribute(node, "title", format.known(value) ? format.moment(value) : ""); return format.when(value, Date.now() / 1000); },
  // A number of seconds, or since when something has lasted.
  lasting: (value) => format.brief(absent(value) || isLeft(value) ? NaN : value.since === undefined ? value : now() - value.since),
};

// Words, alone or in an object; those for what is so now and those for what was; or words and a moment.
function words(value, node) {
  if (absent(value)) { return ""; }
  if (value.old !== undefined && !feed.isFresh()) { return words(value.old, node); }
  if (value.time !== undefined) { attribute(node, "title", format.moment(value.time)); return `${value.text} ${format.when(value.time, Date.now() / 1000)}`; }
  return String(value.text === undefined ? value : value.text);
}

// Joules, or of what is not wholly known that they are at least so many.
function energy(value, largest) {
  return !absent(value) && value.least !== undefined ? `≥ ${format.joules(value.least, largest)}` : format.joules(value, largest);
}

// An estimate in words, unknown once no new values come; or what something took.
function lasted(value) {
  if (!absent(value) && value.took !== undefined) { return format.brief(absent(value.took) ? NaN : value.took); }
  return feed.isFresh() ? format.span(value) : format.MISSING;
}

const drawn = {
  state: (one) => {
    const state = stateNow(one);
    const title = state === one.state ? one.title : feed.oldState();
    const parts = [make("span", { class: `state ${state}`, "aria-hidden": "true" }),
      make("span", { class: "sr", text: one.before }), make("b", { text: one.text }),
      make("span", { class: "sr", text: `, ${one.name}, ${title}` })];
    return [one.group ? opener(one.group, ...parts) : make("a", { class: "row", href: address(one.link), title: one.name }, ...parts)];
  },
  // A state in words.
  standing: (one) => [stateNow(one) === one.state ? make("span", { class: `tag ${one.level}`, text: one.text })
    : make("span", { class: "tag warn", text: feed.oldState() })],
  // Others like the one that is shown, with their states; the figure's arguments stay.
  places: (all) => all.map((one) => {
    const state = stateNow(one);
    const title = state === one.state ? one.title : feed.oldState();
    return make("a", { href: address(one.link) + keptArguments(), "aria-current": one.is_shown ? "page" : null, "aria-label": `${one.name}, ${title}` },
      make("span", { class: `state ${state}`, "aria-hidden": "true" }), one.text);
  }),
  // The parts of a whole: a bar, and each with its color and size.
  parts: (all) => (all.length ? [shareBar(pieces(all), "bar tall"), make("dl", { class: "divided" }, ...all.map((one) => make("div", {},
      make("dt", {}, shareBar(pieces([{ ...one, share: 1 }]), "bar dot"), one.old && isOld() ? one.old : one.title), make("dd", { text: one.size }))))] : []),
  // Words, or the button of a row that opens.
  opening: (one) => [typeof one === "string" ? make("span", { text: one }) : opener(one.opens, make("b", { text: one.text }))],
  tag: (one) => [token(one)].filter(Boolean),
  person: (name) => [person(name)],
  link: (one) => [token(one)],
  bar: (parts) => [shareBar(pieces(parts))],
  // Used and total; without a total there is no share, and no bar.
  memory: (one) => {
    const pair = make("span", { class: "pair" }, make("span", { class: "used", text: one.used }), make("span", { class: one.total === format.MISSING ? "mut none" : "mut", text: one.total }));
    return one.parts ? [pair, shareBar(pieces(one.parts))] : [pair];
  },
  rich: (lines) => lines.map(line).filter(Boolean),
  // Sentences, each with what to do and the place that it leads to. One that opens has those behind it, which are
  // there from the first on: paper has them all.
  notes: (notes) => {
    const at = notes.findIndex((one) => one.opens);
    if (at < 0) { return notes.map(note); }
    const rest = notes.slice(at + 1).map(note);
    const button = make("button", { type: "button", class: "more", click: () => { setOpened(notes[at].opens, !isOpen()); place(); } });
    const isOpen = () => isOpened(notes[at].opens, false);
    const place = () => {
      put(button, isOpen() ? notes[at].opened : notes[at].text);
      attribute(button, "aria-expanded", String(isOpen()));
      for (const one of rest) { one.classList.toggle("rest", !isOpen()); }
    };
    place();
    return [...notes.slice(0, at).map(note), ...rest, make("li", { class: "opens-rest" }, button)];
  },
  // What is well and what is not, each with its state as a shape and a word.
  checks: (all) => all.map(lastReported).map((one) => make("li", { class: one.level },
    make("span", { class: `check ${one.level}`, "aria-hidden": "true" }), make("span", { class: "mut", text: one.title }),
    make("span", { class: "says" }, make("b", { text: format.unbroken(one.text) }), one.more ? make("span", { class: "mut", text: ` ${format.unbroken(one.more)}` }) : null,
      make("span", { class: "sr", text: { ok: ", well", warn: ", needs attention", bad: ", needs attention", unknown: ", unknown" }[one.level] || "" })))),
  // A number of the user's own: one that is none is no missing value but an alarm.
  logged: (value) => [make("span", { class: format.odd(value) ? "alarm" : null, text: format.padded(value) })],
  // A group of buttons with one pressed. Each sets an argument of the address.
  choices: (all) => all.map((one) => make("button", {
    type: "button", text: one.text, title: one.title, "aria-pressed": String(one.is_pressed), click: () => { goTo({ [one.arg]: one.value }); },
  })),
  tick: (one) => [tickBox(one)],
  picked: (one) => tickedActions(one),
  // A list whose selected entry sets an argument of the address.
  pick: (one) => {
    const options = [["", `All ${one.title}s`], ...one.options].map(([value, text]) => make("option", { value, text, selected: value === one.chosen }));
    const list = make("select", { class: one.chosen ? "pick chosen" : "pick", "aria-label": one.title }, ...options);
    list.addEventListener("change", () => { goTo({ [one.arg]: list.value || null }); });
    return [list];
  },
  // The way to another server, which whoever runs this one wrote down.
  away: (one) => (/^https?:\/\//.test(one.href) ? [make("a", { class: "button", text: one.text, href: one.href, rel: "noreferrer" })] : []),
  // A field whose words set an argument of the address, once they are entered.
  asked: (one) => {
    const field = make("input", { type: "search", class: "search", placeholder: one.words, "aria-label": one.title, value: one.text, spellcheck: "false" });
    field.addEventListener("change", () => { goTo({ [one.arg]: field.value.trim() || null }); });
    return [field];
  },
  strip: (one) => [holderStrip(one)],
  day: (uuids) => dayStrip(uuids),
  mine: (one) => ownGpus(one),
  filters: (all) => filters(all),
  // Labels beside each other, each at its share of the width.
  ticks: (all) => all.map((one) => {
    const label = make("span", { text: one.time === undefined ? one.text : format.when(one.time, Date.now() / 1000).replace("today ", "") });
    label.style.left = `${one.at * 100}%`;
    return label;
  }),
  download: (one) => [make("a", { class: "button", text: one.text, href: one.href.startsWith("api/") ? one.href : "#/", download: true })],
};

// A check once nothing new comes: what was well may be so no more, and what was wrong is said as of then.
function lastReported(one) {
  if (!isOld()) { return one; }
  if (one.level === "unknown") { return one; }
  return one.level === "ok" ? { ...one, level: "unknown", text: "not known now", more: "" } : { ...one, more: [one.more, "when last seen"].filter(Boolean).join(" · ") };
}

const address = (link) => (link.startsWith("#/") ? link : "#/");
const pieces = (parts) => parts.map((part) => ({ ...part, color: part.color || theme.ofUser(part.user) }));

function note(one) {
  const about = one.about ? make("span", { class: `tag ${one.level}`, text: one.about }) : null;
  const wasSo = one.old !== undefined && !feed.isFresh();
  const text = wasSo ? one.old : one.time === undefined ? one.text : `${one.text}, ${format.moment(one.time)}`;
  const remedy = one.action ? [" ", make("span", { class: "remedy", text: format.unbroken(one.action) })] : [];
  const said = make("span", { class: about || one.link ? null : "mut" }, format.unbroken(text), ...remedy);
  return make("li", {}, ...(one.link ? [make("a", { href: address(one.link) }, about, said)] : [about, said]));
}

function line(one) {
  if (!one.line) { return token(one); }
  const found = one.line.map(token).filter(Boolean);
  return found.length ? make("div", { class: one.css }, ...found) : null;
}

// One piece of a line; null where it is not to be said of what is old.
function token(one) {
  if ((one.now && !feed.isFresh()) || isLeft(one)) { return null; }
  if ("person" in one) { return one.link ? make("a", { class: "row", href: address(one.link) }, person(one.person)) : person(one.person); }
  if ("link" in one) { return make("a", { class: one.css, text: one.text, href: address(one.link), "aria-label": one.label || null, title: one.text.length > 24 ? one.text : null }); }
  if ("tag" in one) { return make("span", { class: `tag ${one.level}`, text: tagged(one) }); }
  if ("fact" in one) { return make("span", { class: "fact" }, `${one.fact} `, make("b", one.time === null ? { text: one.text } : { text: format.when(one.time, Date.now() / 1000), title: format.moment(one.time) })); }
  if ("opens" in one) { return opener(one.opens, make("b", { text: one.text })); }
  if ("bar" in one) { return shareBar(pieces(one.bar), one.css); }
  return make("span", { class: one.css, text: one.text });
}

function tagged(one) {
  if (one.old === undefined || feed.isFresh()) { return one.tag; }
  return feed.state === "ended" ? one.ended : one.old;
}

// Whether a run has left the epoch of a row that was read while it was in it: the headline knows that first.
const isLeft = (one) => one.while !== undefined && feed.view.values.has("epoch") && feed.view.values.get("epoch") !== one.while;

// The state that may be said now: an old one is none, but for those that last.
export const stateNow = (one) => (feed.isFresh() || one.lasts ? one.state : "stale");

// `node` shows `value` as `kind`. A cell of a small unit has a span for it.
export function showValue(node, kind, value) {
  if (kind === "spark") { sparkline(node, value); return; }
  if (kind === "tiles") { gpuTiles(node, value); return; }
  if (kind === "nodes") { nodeMap(node, value); return; }
  if (!feed.isFresh() && node.dataset.old !== undefined) { old(node, kind); return; }
  if (!texts[kind]) { replaceChildren(node, ...(absent(value) ? [] : drawn[kind](value))); return; }
  const text = texts[kind](value, node);
  if (!node.dataset.unit) { put(node, text); return; }
  putValue(node, text);
}

// Nothing is known of it.
export function showUnknown(node) {
  const { kind, unit } = node.dataset;
  showValue(node, kind, unit && texts[kind] ? format.MISSING : null);
}

function old(node, kind) {
  const text = node.dataset.old;
  if (drawn[kind]) { replaceChildren(node, ...(kind === "notes" ? drawn.notes([{ text }]) : [])); return; }
  if (node.dataset.unit) { putValue(node, text); } else { put(node, text); }
}

// What moves by itself, though no value came.
export const movesByItself = (kind, value) => (!absent(value) && value.while !== undefined) || kind === "spark" || kind === "age" || kind === "lasting" || kind === "elapsed";

// The mean of lines; unknown where one of them is.
function mean(lines) {
  if (lines.length === 1) { return lines[0]; }
  return lines[0].map((_, at) => (lines.some((one) => !format.known(one[at])) ? null : lines.reduce((sum, one) => sum + one[at], 0) / lines.length));
}

function sparkline(node, value) {
  if (absent(value)) { return; }
  const canvas = node.firstChild || node.appendChild(make("canvas", { class: "spark", "aria-hidden": "true" }));
  const { t: times, lines } = feed.view.series;
  const role = !feed.isFresh() ? "mut" : value.color || theme.ofUser(value.user);
  drawSparkline(canvas, times, mean(value.series.map((name) => lines.get(name) || [])), feed.clock(), WINDOW, role);
}
