// Rows that are ticked, as a list in the address, and where it leads: the rows stay ticked in a link and when one comes back.
// @ts-check
import { elements, make } from "./dom.js";
import { feed } from "./feed.js";
import { showValue } from "./kinds.js";
import { setArguments } from "./router.js";

const asked = () => new URLSearchParams(location.hash.split("?")[1] || "");
// Each name is quoted by itself, as one may have a comma.
const unquoted = (text) => { try { return decodeURIComponent(text); } catch { return text; } };
const ticked = (arg) => (asked().get(arg) || "").split(",").filter(Boolean).map(unquoted);
const quoted = (all) => all.map(encodeURIComponent).join(",");

// A box before a row; `one`: {arg, value, label, most}
export function tickBox(one) {
  const box = make("input", { type: "checkbox", "aria-label": one.label, "data-arg": one.arg, "data-value": one.value, "data-most": one.most });
  box.addEventListener("change", () => {
    const others = ticked(one.arg).filter((value) => value !== one.value);
    const all = box.checked ? [...others, one.value] : others;
    setArguments({ [one.arg]: all.length ? quoted(all) : null });
    again();
  });
  shown(box, ticked(one.arg));
  return make("label", { class: "tick" }, box);
}

function shown(box, all) {
  box.checked = all.includes(box.dataset.value);
  box.disabled = !box.checked && all.length >= Number(box.dataset.most);
}

function again() {
  const page = document.querySelector("[data-page]:not([hidden])");
  for (const box of elements(page, ".tick input")) { shown(box, ticked(box.dataset.arg)); }
  for (const node of elements(page, "[data-kind=picked]")) { showValue(node, "picked", feed.value(node.dataset.bind)); }
}

// What can be done with them; `one`: {arg, page, as, fewest, words, is_vain}
export function tickedActions(one) {
  const all = ticked(one.arg);
  if (!all.length || one.is_vain) { return [make("span", { class: "mut", text: one.words })]; }
  const none = make("button", { type: "button", class: "button", text: "None", "aria-label": "Tick none", click: () => { setArguments({ [one.arg]: null }); again(); } });
  if (all.length < one.fewest) { return [make("span", { class: "mut", text: `${all.length} ticked` }), none]; }
  const address = `#/${one.page}?${new URLSearchParams({ [one.as]: quoted(all) })}`;
  return [make("a", { class: "button first", href: address, text: `Compare ${all.length} runs` }), none];
}
