// Controls that set arguments of the address: buttons, lists, fields, and rows that are ticked.
// @ts-check
import { addressArguments, setArguments } from "./address.js";
import { elements, make } from "./dom.js";
import { feed } from "./feed.js";
import { countTagged, usualSort } from "./groups.js";
import { showValue } from "./kinds.js";
import { goTo } from "./router.js";
import { currentUser, MINE } from "./viewer.js";

const currentPage = () => document.querySelector("[data-page]:not([hidden])");

// A group of buttons, one of which is pressed.
export const choiceButtons = (all) => all.map((one) => make("button", {
  text: one.text, title: one.title, "aria-pressed": String(one.is_pressed), click: () => { goTo({ [one.arg]: one.value }); },
}));

// Buttons that narrow or order the rows of the page's grouped table, with the number of these rows.
export function filterButtons(all) {
  const [table] = elements(currentPage(), "[data-within]");
  const params = addressArguments();
  const usual = (arg) => (arg === "sort" && table ? usualSort(table.dataset.rows) : "");
  return all.filter((one) => one.value !== MINE || currentUser()).map((one) => {
    const count = one.value === MINE && one.count !== undefined ? countTagged(table.dataset.rows, MINE) : one.count;
    const isShown = count !== undefined && count !== null && (!one.value || feed.isFresh()); // old counts, as of free GPUs, are left out
    return make("button", {
      "aria-pressed": String((params.get(one.arg) ?? usual(one.arg)) === one.value), text: isShown ? `${one.text} ${count}` : one.text,
      click: () => { goTo({ [one.arg]: one.value || null }); },
    });
  });
}

export function selectList(one) {
  const options = [["", `All ${one.title}s`], ...one.options].map(([value, text]) => make("option", { value, text, selected: value === one.chosen }));
  const list = /** @type {HTMLSelectElement} */ (make("select", { class: one.chosen ? "pick chosen" : "pick", "aria-label": one.title }, ...options));
  list.addEventListener("change", () => { goTo({ [one.arg]: list.value || null }); });
  return list;
}

// A search field whose words are sent once they are entered.
export function searchWords(one) {
  const field = /** @type {HTMLInputElement} */ (make("input", { type: "search", class: "search", placeholder: one.words, "aria-label": one.title, value: one.text, spellcheck: "false" }));
  field.addEventListener("change", () => { goTo({ [one.arg]: field.value.trim() || null }); });
  return field;
}

// Ticked rows are a list in the address. Each name is quoted by itself, since it may have a comma.
function ticked(arg) {
  return (addressArguments().get(arg) || "").split(",").filter(Boolean).map((text) => {
    try { return decodeURIComponent(text); } catch { return text; }
  });
}
const quoted = (all) => all.map(encodeURIComponent).join(",");

function setTicked(arg, all) {
  setArguments({ [arg]: all.length ? quoted(all) : null });
  for (const box of elements(currentPage(), ".tick input")) { showTick(box, ticked(box.dataset.arg)); }
  for (const node of elements(currentPage(), "[data-kind=picked]")) { showValue(node, "picked", feed.value(node.dataset.bind)); }
}

function showTick(box, all) {
  box.checked = all.includes(box.dataset.value);
  box.disabled = !box.checked && all.length >= Number(box.dataset.most);
}

// The box of a row: {arg, value, label, most}, of which at most `most` can be ticked.
export function tickBox(one) {
  const box = /** @type {HTMLInputElement} */ (make("input", { type: "checkbox", "aria-label": one.label, "data-arg": one.arg, "data-value": one.value, "data-most": one.most }));
  box.addEventListener("change", () => {
    const others = ticked(one.arg).filter((value) => value !== one.value);
    setTicked(one.arg, box.checked ? [...others, one.value] : others);
  });
  showTick(box, ticked(one.arg));
  return make("label", { class: "tick" }, box);
}

// What can be done with ticked rows: {arg, page, as, fewest, words, is_vain}.
export function tickedActions(one) {
  const all = ticked(one.arg);
  if (!all.length || one.is_vain) { return [make("span", { class: "mut", text: one.words })]; }
  const none = make("button", { class: "button", text: "None", "aria-label": "Tick none", click: () => setTicked(one.arg, []) });
  if (all.length < one.fewest) { return [make("span", { class: "mut", text: `${all.length} ticked` }), none]; }
  const address = `#/${one.page}?${new URLSearchParams({ [one.as]: quoted(all) })}`;
  return [make("a", { class: "button first", href: address, text: `Compare ${all.length} runs` }), none];
}
