// The scripts of the pages in Node: as much of a browser as they need to be loaded, and to make elements.
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

const ASSETS = path.join(__dirname, "../../../web/gpumon_web/assets");

// An element that has children, text, attributes and classes, and no looks.
class Element {
  constructor(tag) {
    Object.assign(this, { tag, children: [], attributes: {}, dataset: {}, style: { setProperty() {} }, own: "", hidden: false, className: "" });
  }
  get textContent() { return this.own + this.children.map((one) => one.textContent ?? one).join(""); }
  set textContent(text) { this.own = text; this.children = []; }
  get firstChild() { return this.children[0] || null; }
  append(...children) { this.children.push(...children); }
  appendChild(child) { this.children.push(child); return child; }
  replaceChildren(...children) { this.own = ""; this.children = children; }
  setAttribute(name, value) { this.attributes[name] = value; }
  getAttribute(name) { return this.attributes[name] ?? null; }
  addEventListener() {}
  find(tag) { return [...(this.tag === tag ? [this] : []), ...this.children.flatMap((one) => (one.find ? one.find(tag) : []))]; }
}

// The scripts by the beginnings of their names, in a world of their own; `answers` are what fetch gives, one by one.
exports.load = function (names, answers = []) {
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
    getComputedStyle: () => ({ getPropertyValue: () => "#000000" }),
    document: {
      hidden: false, documentElement: new Element("html"), addEventListener() {}, getElementById: () => null,
      createElement: (tag) => new Element(tag),
    },
  };
  world.window = world;
  world.addEventListener = () => {};
  world.matchMedia = () => ({ matches: false, addEventListener() {} });
  vm.createContext(world);
  for (const file of fs.readdirSync(ASSETS).sort()) {
    if (names.some((name) => file.startsWith(name))) {
      vm.runInContext(fs.readFileSync(path.join(ASSETS, file), "utf8"), world, { filename: file });
    }
  }
  return world;
};
exports.Element = Element;
