// The scripts of the pages in Node, with as much of a browser as they need to be loaded and to make elements.
"use strict";
const fs = require("node:fs");
const vm = require("node:vm");

// The bundle of the module `router`, by `bundle_modules` of `gpumon_web.assets_bundle`.
const SCRIPTS = fs.readFileSync(process.env.GPUMON_SCRIPTS, "utf8");

const camel = (name) => name.replace(/-(\w)/g, (_, letter) => letter.toUpperCase());

// An element with children, text, attributes, classes and listeners, and without a layout.
class Element {
  constructor(tag, attributes = {}, ...children) {
    Object.assign(this, { tag, children: [], attributes: {}, dataset: {}, style: { setProperty() {} }, own: "", hidden: false, className: "", parentElement: null, told: {} });
    for (const [name, value] of Object.entries(attributes)) { if (name === "class") { this.className = value; } else { this.setAttribute(name, value); } }
    this.append(...children);
  }
  get tagName() { return this.tag.toUpperCase(); }
  get textContent() { return this.own + this.children.map((one) => one.textContent ?? one).join(""); }
  set textContent(text) { this.own = text; this.children = []; }
  get firstChild() { return this.children[0] || null; }
  get previousElementSibling() { return this.parentElement.children[this.parentElement.children.indexOf(this) - 1] || null; }
  get tBodies() { return this.find("tbody"); }
  get classList() {
    const all = () => this.className.split(" ").filter(Boolean);
    return {
      contains: (name) => all().includes(name),
      toggle: (name, on) => { this.className = [...all().filter((one) => one !== name), ...(on ? [name] : [])].join(" "); },
    };
  }
  put(place, ...children) {
    for (const child of children) { if (child instanceof Element) { child.remove(); child.parentElement = this; } }
    this.children.splice(place, 0, ...children);
  }
  append(...children) { this.put(this.children.length, ...children); }
  appendChild(child) { this.append(child); return child; }
  insertBefore(child, other) { child.remove(); this.put(other ? this.children.indexOf(other) : this.children.length, child); }
  before(...others) { this.parentElement.put(this.parentElement.children.indexOf(this), ...others); }
  after(...others) { this.parentElement.put(this.parentElement.children.indexOf(this) + 1, ...others); }
  replaceChildren(...children) { this.own = ""; this.children = []; this.append(...children); }
  replaceWith(other) { this.before(other); this.remove(); }
  remove() {
    if (this.parentElement) { this.parentElement.children.splice(this.parentElement.children.indexOf(this), 1); }
    this.parentElement = null;
  }
  cloneNode() {
    const twin = new Element(this.tag, { ...this.attributes, class: this.className }, ...this.children.map((one) => (one.cloneNode ? one.cloneNode() : one)));
    Object.assign(twin.dataset, this.dataset);
    return Object.assign(twin, { own: this.own, hidden: this.hidden });
  }
  setAttribute(name, value) {
    this.attributes[name] = value;
    if (name.startsWith("data-")) { this.dataset[camel(name.slice(5))] = value; }
  }
  getAttribute(name) { return this.attributes[name] ?? null; }
  addEventListener(name, heard) { this.told[name] = heard; }
  click() { this.told.click({}); }
  find(tag) { return [...(this.tag === tag ? [this] : []), ...this.children.flatMap((one) => (one.find ? one.find(tag) : []))]; }
  // Knows the selectors `tag`, `.class`, `[data-name]`, `[data-name="value"]`, and a tag followed by one of the others.
  matches(selector) {
    const [, tag, name, data, is] = /^(\w*)(?:\.([\w-]+))?(?:\[data-([\w-]+)(?:="([\w-]*)")?\])?$/.exec(selector);
    const found = this.dataset[camel(data || "")];
    return (!tag || this.tag === tag) && (!name || this.classList.contains(name)) && (!data || (found !== undefined && (is === undefined || found === is)));
  }
  querySelectorAll(selector) {
    return this.children.filter((one) => one instanceof Element).flatMap((one) => [...(one.matches(selector) ? [one] : []), ...one.querySelectorAll(selector)]);
  }
  querySelector(selector) { return this.querySelectorAll(selector)[0] || null; }
  closest(selector) { return this.matches(selector) ? this : this.parentElement && this.parentElement.closest(selector); }
}

// Loads the scripts into a context of their own, without starting a page. `answers` are the results of fetch, one by one.
// `gpumon` has the exports of all modules by their name; setting one replaces it for the modules that import it.
exports.load = function (answers = []) {
  const world = {
    console, performance, URLSearchParams, AbortController, queueMicrotask,
    asked: [], later: [],
    setTimeout: (done, wait) => { world.later.push({ done, wait }); return world.later.length; },
    clearTimeout: () => {},
    fetch: async (address) => {
      world.asked.push(address);
      const body = answers.shift();
      if (body === undefined) { throw new TypeError("no network"); }
      return { ok: true, status: 200, json: async () => body };
    },
    localStorage: { getItem: () => null, setItem() {} },
    getComputedStyle: () => ({ color: "rgb(0, 0, 0)" }),
    document: {
      hidden: false, documentElement: new Element("html"), addEventListener() {}, getElementById: () => null,
      createElement: (tag) => new Element(tag),
    },
  };
  world.IntersectionObserver = class { observe() {} };
  world.window = world;
  world.addEventListener = () => {};
  world.matchMedia = () => ({ matches: false, addEventListener() {} });
  vm.createContext(world);
  vm.runInContext(SCRIPTS, world, { filename: "scripts.js" });
  const modules = world.window.gpumon;
  modules.link();
  const moduleOf = (name) => Object.values(modules).find((module) => name in module);
  world.gpumon = new Proxy({ text: modules.format }, {
    get: (own, name) => own[name] ?? moduleOf(name)?.[name],
    set(own, name, value) { moduleOf(name)[name] = value; modules.link(); return true; },
  });
  return world;
};
exports.Element = Element;
