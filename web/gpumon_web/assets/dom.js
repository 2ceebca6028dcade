// The only ways in which text and elements enter the page. Names are text and never markup: they are set as textContent or as
// attributes, and none is part of a style.
// @ts-check

// An element: `set` has class, text, a listener for clicks, and attributes; children are elements or text.
export function make(tag, set, ...children) {
  const node = document.createElement(tag);
  if (tag === "button") { node.setAttribute("type", "button"); }
  for (const [name, value] of Object.entries(set || {})) {
    if (value === undefined || value === null || value === false) { continue; }
    if (name === "class") { node.className = value; }
    else if (name === "text") { node.textContent = value; }
    else if (name === "click") { node.addEventListener("click", value); }
    else { node.setAttribute(name, value === true ? "" : String(value)); }
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/**
 * The elements below `root` that match a selector.
 * @param {ParentNode} root
 * @param {string} selector
 * @returns {HTMLElement[]}
 */
export function elements(root, selector) {
  return [.../** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll(selector))];
}

// Sets text if it is new: setting the same text again would clear the reader's selection.
export function put(node, text) {
  if (node.textContent !== text) { node.textContent = text; }
}

export function attribute(node, name, value) {
  if (node.getAttribute(name) !== value) { node.setAttribute(name, value); }
}

export function hide(node, hidden) {
  if (node.hidden !== hidden) { node.hidden = hidden; }
}

// Sets a number with its unit, as `97 %`, the unit in an element of its own: it is smaller.
export function putValue(node, text) {
  if (node.dataset.shown === text) { return; }
  node.dataset.shown = text;
  const at = text.indexOf(" ", /^[≥≤≈~<>]? ?/.exec(text)[0].length);
  node.replaceChildren(at < 0 ? text : text.slice(0, at));
  if (at >= 0) { node.append(make("small", { text: text.slice(at) })); }
}

// Replaces children if `value`, from which they are created, has changed.
export function fillOnce(node, value, create) {
  const key = JSON.stringify(value);
  if (node.gpumonFilled === key) { return; }
  node.gpumonFilled = key;
  replaceChildren(node, ...create());
}

// Replaces children. If one of them has the focus, its successor gets it: the keyboard would start at the top of the page
// otherwise.
export function replaceChildren(node, ...children) {
  const focused = /** @type {HTMLElement} */ (document.activeElement);
  if (!focused || focused === node || !node.contains(focused)) { node.replaceChildren(...children); return; }
  const controls = () => elements(node, "a, button, input, select");
  const place = controls().indexOf(focused);
  node.replaceChildren(...children);
  const next = controls().find((control) => identity(control) === identity(focused)) || controls()[place];
  if (next) { next.focus({ preventScroll: true }); }
}
const identity = (node) => `${node.tagName} ${node.getAttribute("href")} ${node.textContent}`;

// Moves an element before another one; it keeps the focus.
export function insertBefore(parent, node, other) {
  const focused = /** @type {HTMLElement} */ (document.activeElement);
  parent.insertBefore(node, other);
  if (focused && focused !== document.activeElement && node.contains(focused)) { focused.focus({ preventScroll: true }); }
}
