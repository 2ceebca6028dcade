// Who the viewer is: a choice on the fleet page, which never leaves the browser.
// @ts-check
import { pageLink } from "./address.js";
import { make } from "./dom.js";
import { feed } from "./feed.js";
import * as format from "./format.js";
import { redrawPage } from "./router.js";
import { readSetting, saveSetting } from "./settings.js";
import { theme } from "./theme.js";

const KEY = "gpumon-me";

// Whether the server hides the names of users.
const isNameless = () => Boolean(feed.server && feed.server.nameless);

// The name of the viewer; empty if it is not known.
export const currentUser = () => (!isNameless() && readSetting(KEY)) || "";

const isMine = (row) => Boolean(currentUser()) && (row.users || []).includes(currentUser());

// The tag of rows that belong to the viewer. The server gives all other tags of a row.
export const MINE = "mine";
export const hasTag = (row, tag) => (tag === MINE ? isMine(row) : (row.tags || []).includes(tag));

// The headline about the viewer's own GPUs, with the choice of a name.
export function ownGpus({ users: byUser, own: page }) {
  if (isNameless()) { return [make("span", { class: "counted", text: format.MISSING }), make("span", { class: "below", text: "names are hidden here" })]; }
  const me = currentUser();
  const users = [...new Set([...theme.users(), ...(me ? [me] : [])])].sort();
  const list = /** @type {HTMLSelectElement} */ (make("select", { class: "pick", "aria-label": "I am" },
    make("option", { value: "", text: me ? "nobody" : "I am …" }),
    ...users.map((name) => make("option", { value: name, text: name, selected: name === me }))));
  list.addEventListener("change", () => { saveSetting(KEY, list.value); redrawPage(); });
  if (!me) { return [list, make("span", { class: "below", text: users.length ? "marks your GPUs" : "no users yet" })]; }
  const own = byUser[me] || { count: 0, below: "" };
  return [make("span", { class: "counted" }, String(own.count), make("small", { text: own.count === 1 ? " GPU" : " GPUs" }), list),
    make("a", { class: "below", href: pageLink(page) + encodeURIComponent(me), text: (feed.isFresh() ? own.below : own.last) || "my hours" })];
}
