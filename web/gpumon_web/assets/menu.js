// Menus: <details class="opens"> with a list below its button, as charts and Dash's pages have them.
// @ts-check
import { elements, make, put } from "./dom.js";

// A menu with a button; `setLabel` changes the words of the button.
export function makeMenu(className, ...content) {
  const label = make("span");
  const box = make("div", { class: "menu", role: "group" }, ...content);
  const node = /** @type {HTMLDetailsElement} */ (make("details", { class: `opens ${className}` },
    make("summary", { class: "button" }, label, make("span", { text: " ▾", "aria-hidden": "true" })), box));
  return { node, box, close() { node.open = false; }, setLabel: (text) => put(label, text) };
}

// Closes a menu once the viewer clicks or moves the focus elsewhere, or presses Esc.
export function closeMenusElsewhere() {
  const close = (event) => {
    for (const opened of elements(document, "details.opens[open]")) { if (!opened.contains(event.target)) { opened.removeAttribute("open"); } }
  };
  window.addEventListener("pointerdown", close, true);
  window.addEventListener("focusin", close);
  window.addEventListener("keydown", (press) => {
    const opened = press.key === "Escape" && document.activeElement?.closest("details.opens[open]");
    if (opened) { opened.removeAttribute("open"); opened.querySelector("summary").focus(); }
  });
}
