"use strict";
const assert = require("node:assert");
const test = require("node:test");
const { load } = require("./browser.js");

const part = (type, props) => ({ namespace: "dash_html_components", type, props });

test("a layout becomes elements with their attributes and texts in their order", () => {
  const { gpumon } = load(["00", "84"]);
  const layout = part("Section", { className: "card", "data-bind": "name", children: [
    "before ", part("B", { children: 7 }), null, part("Ul", { children: part("Li", { children: "<b>x</b>", hidden: true }) }),
  ] });
  const [node, ...rest] = gpumon.elements(layout);
  assert.strictEqual(rest.length, 0);
  assert.deepStrictEqual([node.tag, node.className, node.dataset.bind], ["section", "card", "name"]);
  assert.strictEqual(node.textContent, "before 7<b>x</b>");
  assert.strictEqual(node.find("b").length, 1, "what looks like an element is text");
  assert.strictEqual(node.find("li")[0].getAttribute("hidden"), "");
});
