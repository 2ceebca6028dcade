// The only ways in which text and elements enter the page. A name from a user is text and nothing else:
// textContent everywhere, never markup, never a style attribute.
// @ts-check

// An element: `set` has class, text, title, and attributes; children are elements or text.
export function make(tag, set, ...children) {
  const node = document.createElement(tag);
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

// New text, only where it is new: a node that is rewritten each second loses the reader's selection.
export function put(node, text) {
  if (node.textContent !== text) { node.textContent = text; }
}

export function attribute(node, name, value) {
  if (node.getAttribute(name) !== value) { node.setAttribute(name, value); }
}

export function hide(node, hidden) {
  if (node.hidden !== hidden) { node.hidden = hidden; }
}

// A number large and its unit small: `97 %` as two parts of one node.
export function putValue(node, text) {
  if (node.dataset.shown === text) { return; }
  node.dataset.shown = text;
  const at = text.indexOf(" ", /^[≥≤≈~<>]? ?/.exec(text)[0].length);
  node.replaceChildren(at < 0 ? text : text.slice(0, at));
  if (at >= 0) { node.append(make("small", { text: text.slice(at) })); }
}

// Replace children only if `sign`, the value that they show, has changed.
export function fillOnce(node, sign, create) {
  const key = JSON.stringify(sign);
  if (node.gpumonSign === key) { return; }
  node.gpumonSign = key;
  replaceChildren(node, ...create());
}

// Replace children. The focused one hands the focus to its successor: otherwise the keyboard would start at the top of
// the page again, and Enter would do nothing.
export function replaceChildren(node, ...children) {
  const held = /** @type {HTMLElement} */ (document.activeElement);
  if (!held || held === node || !node.contains(held)) { node.replaceChildren(...children); return; }
  const all = () => [...node.querySelectorAll("a, button, input, select")];
  const place = all().indexOf(held);
  node.replaceChildren(...children);
  const found = all();
  const next = found.find((one) => does(one) === does(held)) || found[place];
  if (next) { next.focus({ preventScroll: true }); }
}
const does = (node) => `${node.tagName} ${node.getAttribute("href")} ${node.textContent}`;

// An element in its place before another. One that is moved keeps the focus that it has.
export function insertBefore(parent, node, other) {
  const held = /** @type {HTMLElement} */ (document.activeElement);
  parent.insertBefore(node, other);
  if (held && held !== document.activeElement && node.contains(held)) { held.focus({ preventScroll: true }); }
}
