// Shows a value by its kind, as text or as elements. Only text, and links to pages, enter the page.
// @ts-check
import { keptArguments, pageLink } from "./address.js";
import { choiceButtons, filterButtons, searchWords, selectList, tickBox, tickedActions } from "./controls.js";
import { attribute, make, put, putValue, replaceChildren } from "./dom.js";
import { feed } from "./feed.js";
import * as format from "./format.js";
import { isOpened, opener, setOpened } from "./groups.js";
import { gpuTiles, nodeMap } from "./nodes.js";
import { showSparkline } from "./spark.js";
import { dayStrip, holderStrip } from "./strip.js";
import { person, shareBar, theme } from "./theme.js";
import { ownGpus } from "./viewer.js";

const MOVING = ["spark", "age", "lasting", "elapsed"]; // kinds that change with time alone
const LEVEL_WORDS = { ok: ", well", warn: ", needs attention", bad: ", needs attention", unknown: ", unknown" };
const LONG_LINK = 24; // letters from which on a link has its text as a title
const dataNow = () => (format.known(feed.now) ? feed.now : Date.now() / 1000);
const when = (seconds) => format.when(seconds, Date.now() / 1000);
const absent = (value) => value === null || value === undefined;
// Whether the values are old. Those at the end of a recording are not.
const isOld = () => !feed.isFresh() && feed.state !== "ended";

// Kinds that are text: a function of the value and its element.
const texts = {
  text: words, mono: (value) => value || format.MISSING,
  count: format.count, percent: format.percent, bytes: format.bytes, watts: format.watts, celsius: format.celsius, gigahertz: format.gigahertz,
  joules: (value, node) => energy(value, node.dataset.most ? feed.value(node.dataset.most) : undefined),
  duration: format.brief, span: estimate, age: (value) => format.age(value, dataNow()),
  elapsed: (value) => (!format.known(value) ? format.MISSING : isOld() ? `since ${when(value)}` : format.span(dataNow() - value)),
  when: (value, node) => { attribute(node, "title", format.known(value) ? format.moment(value) : ""); return when(value); },
  // Seconds, or {since} of something that goes on.
  lasting: (value) => format.brief(absent(value) || isPast(value) ? NaN : value.since === undefined ? value : dataNow() - value.since),
};

// Words, or an object with `text`, with a moment (`time`) behind it, or with other words (`old`) for a value that is not fresh.
function words(value, node) {
  if (absent(value)) { return ""; }
  if (value.old !== undefined && !feed.isFresh()) { return words(value.old, node); }
  if (value.time !== undefined) { attribute(node, "title", format.moment(value.time)); return `${value.text} ${when(value.time)}`; }
  return String(value.text === undefined ? value : value.text);
}

// Joules, or {least} if a part of the energy is not known.
function energy(value, largest) {
  return !absent(value) && value.least !== undefined ? `≥ ${format.joules(value.least, largest)}` : format.joules(value, largest);
}

// Estimated seconds, which are not shown once they are old; or {took}, the seconds that something took.
function estimate(value) {
  if (!absent(value) && value.took !== undefined) { return format.brief(absent(value.took) ? NaN : value.took); }
  return feed.isFresh() ? format.span(value) : format.MISSING;
}

// Kinds that are elements: a function of the value that returns them.
const parts = {
  state: (one) => {
    const { state, title } = currentState(one);
    const children = [make("span", { class: `state ${state}`, "aria-hidden": "true" }),
      make("span", { class: "sr", text: one.before }), make("b", { text: one.text }),
      make("span", { class: "sr", text: `, ${one.name}, ${title}` })];
    return [one.group ? opener(one.group, ...children) : make("a", { class: "row", href: pageLink(one.link), title: one.name }, ...children)];
  },
  // A state in words.
  standing: (one) => [stateNow(one) === one.state ? make("span", { class: `tag ${one.level}`, text: one.text })
    : make("span", { class: "tag warn", text: feed.oldState() })],
  // Links to the GPUs of the machine, with their states.
  places: (all) => all.map((one) => {
    const { state, title } = currentState(one);
    return make("a", { href: pageLink(one.link) + keptArguments(), "aria-current": one.is_shown ? "page" : null, "aria-label": `${one.name}, ${title}` },
      make("span", { class: `state ${state}`, "aria-hidden": "true" }), one.text);
  }),
  // The parts of a whole: a bar, and each part with its color and size.
  parts: (all) => (all.length ? [shareBar(colored(all), "bar tall"), make("dl", { class: "divided" }, ...all.map((one) => make("div", {},
    make("dt", {}, shareBar(colored([{ ...one, share: 1 }]), "bar dot"), one.old && isOld() ? one.old : one.title), make("dd", { text: one.size }))))] : []),
  // Words, or the button of a row that opens.
  opening: (one) => [typeof one === "string" ? make("span", { text: one }) : opener(one.opens, make("b", { text: one.text }))],
  tag: (one) => [token(one)].filter(Boolean),
  person: (name) => [person(name)],
  link: (one) => [token(one)],
  bar: (all) => [shareBar(colored(all))],
  // Used and total memory. Without a total there is no share, and no bar.
  memory: (one) => {
    const pair = make("span", { class: "pair" }, make("span", { class: "used", text: one.used }), make("span", { class: one.total === format.MISSING ? "mut none" : "mut", text: one.total }));
    return one.parts ? [pair, shareBar(colored(one.parts))] : [pair];
  },
  rich: (lines) => lines.map(line).filter(Boolean),
  notes: (all) => noteItems(all),
  // Checks of a GPU, each with its level as a shape and as a word.
  checks: (all) => all.map(lastReported).map((one) => make("li", { class: one.level },
    make("span", { class: `check ${one.level}`, "aria-hidden": "true" }), make("span", { class: "mut", text: one.title }),
    make("span", { class: "says" }, make("b", { text: format.unbroken(one.text) }), one.more ? make("span", { class: "mut", text: ` ${format.unbroken(one.more)}` }) : null,
      make("span", { class: "sr", text: LEVEL_WORDS[one.level] || "" })))),
  // A number that a training logged. NaN and infinities are alarms, and not missing values.
  logged: (value) => [make("span", { class: format.odd(value) ? "alarm" : null, text: format.padded(value) })],
  choices: (all) => choiceButtons(all),
  filters: (all) => filterButtons(all),
  pick: (one) => [selectList(one)],
  asked: (one) => [searchWords(one)],
  tick: (one) => [tickBox(one)],
  picked: (one) => tickedActions(one),
  // A link to another server, from the configuration of this one.
  away: (one) => (/^https?:\/\//.test(one.href) ? [make("a", { class: "button", text: one.text, href: one.href, rel: "noreferrer" })] : []),
  strip: (one) => [holderStrip(one)],
  day: (uuids) => dayStrip(uuids),
  mine: (one) => ownGpus(one),
  // Labels of an axis, each at its share of the width.
  ticks: (all) => all.map((one) => {
    const label = make("span", { text: one.time === undefined ? one.text : when(one.time).replace("today ", "") });
    label.style.left = `${one.at * 100}%`;
    return label;
  }),
  download: (one) => [make("a", { class: "button", text: one.text, href: one.href.startsWith("api/") ? one.href : "#/", download: true })],
};

// Findings, each with what to do and a link. The ones behind an entry that `opens` are hidden until its button is pressed, but
// not on paper.
function noteItems(all) {
  const at = all.findIndex((one) => one.opens);
  if (at < 0) { return all.map(note); }
  const rest = all.slice(at + 1).map(note);
  const button = make("button", { class: "more", click: () => { setOpened(all[at].opens, !isOpen()); update(); } });
  const isOpen = () => isOpened(all[at].opens, false);
  const update = () => {
    put(button, isOpen() ? all[at].opened : all[at].text);
    attribute(button, "aria-expanded", String(isOpen()));
    for (const one of rest) { one.classList.toggle("rest", !isOpen()); }
  };
  update();
  return [...all.slice(0, at).map(note), ...rest, make("li", { class: "opens-rest" }, button)];
}

// A check while the values are old: what was well is unknown, and what was wrong was so when last seen.
function lastReported(one) {
  if (!isOld() || one.level === "unknown") { return one; }
  return one.level === "ok" ? { ...one, level: "unknown", text: "not known now", more: "" } : { ...one, more: [one.more, "when last seen"].filter(Boolean).join(" · ") };
}

const colored = (all) => all.map((part) => ({ ...part, color: part.color || theme.ofUser(part.user) }));

function note(one) {
  const about = one.about ? make("span", { class: `tag ${one.level}`, text: one.about }) : null;
  const wasSo = one.old !== undefined && !feed.isFresh();
  const text = wasSo ? one.old : one.time === undefined ? one.text : `${one.text}, ${format.moment(one.time)}`;
  const remedy = one.action ? [" ", make("span", { class: "remedy", text: format.unbroken(one.action) })] : [];
  const sentence = make("span", { class: about || one.link ? null : "mut" }, format.unbroken(text), ...remedy);
  return make("li", {}, ...(one.link ? [make("a", { href: pageLink(one.link) }, about, sentence)] : [about, sentence]));
}

function line(one) {
  if (!one.line) { return token(one); }
  const tokens = one.line.map(token).filter(Boolean);
  return tokens.length ? make("div", { class: one.css }, ...tokens) : null;
}

// One piece of a line; null for a piece that holds only `now` while the values are old.
function token(one) {
  if ((one.now && !feed.isFresh()) || isPast(one)) { return null; }
  if ("person" in one) { return one.link ? make("a", { class: "row", href: pageLink(one.link) }, person(one.person)) : person(one.person); }
  if ("link" in one) { return make("a", { class: one.css, text: one.text, href: pageLink(one.link), "aria-label": one.label || null, title: one.text.length > LONG_LINK ? one.text : null }); }
  if ("tag" in one) { return make("span", { class: `tag ${one.level}`, text: tagText(one) }); }
  if ("fact" in one) { return make("span", { class: "fact" }, `${one.fact} `, make("b", one.time === null ? { text: one.text } : { text: when(one.time), title: format.moment(one.time) })); }
  if ("opens" in one) { return opener(one.opens, make("b", { text: one.text })); }
  if ("bar" in one) { return shareBar(colored(one.bar), one.css); }
  return make("span", { class: one.css, text: one.text });
}

function tagText(one) {
  if (one.old === undefined || feed.isFresh()) { return one.tag; }
  return feed.state === "ended" ? one.ended : one.old;
}

// Whether a value holds only while its run is in a certain epoch, and the headline shows another one already: rows of the
// ledger come less often than the headline.
const isPast = (one) => one.while !== undefined && feed.view.values.has("epoch") && feed.view.values.get("epoch") !== one.while;

// The state to show: an old one is stale, unless it lasts, as "lost" does.
export const stateNow = (one) => (feed.isFresh() || one.lasts ? one.state : "stale");

function currentState(one) {
  const state = stateNow(one);
  return { state, title: state === one.state ? one.title : feed.oldState() };
}

// Shows `value` as `kind` in an element. The element says by data-unit that the unit is small, and by data-old what to show
// while the values are old.
export function showValue(node, kind, value) {
  if (kind === "spark") { showSparkline(node, value); return; }
  if (kind === "tiles") { gpuTiles(node, value); return; }
  if (kind === "nodes") { nodeMap(node, value); return; }
  const isReplaced = !feed.isFresh() && node.dataset.old !== undefined;
  if (parts[kind]) {
    const old = isReplaced && kind === "notes" ? noteItems([{ text: node.dataset.old }]) : [];
    replaceChildren(node, ...(isReplaced || absent(value) ? old : parts[kind](value)));
    return;
  }
  const text = isReplaced ? node.dataset.old : texts[kind](value, node);
  if (node.dataset.unit) { putValue(node, text); } else { put(node, text); }
}

// Shows that the value of an element is unknown.
export function showUnknown(node) {
  const { kind, unit } = node.dataset;
  showValue(node, kind, unit && texts[kind] ? format.MISSING : null);
}

// Whether a value has to be shown again although it did not change.
export const movesByItself = (kind, value) => (!absent(value) && value.while !== undefined) || MOVING.includes(kind);
