"use strict";
const assert = require("node:assert");
const test = require("node:test");
const { Element, load } = require("./browser.js");

const HEADS = [
  { col: "name", by: "name", kind: "text", sort: "1", head: "1" }, { col: "size", by: "size", kind: "bytes", sort: "1", num: true },
  { col: "since", by: "since", kind: "lasting", sort: "1", num: true },
];

// A table of these heads, with rows by key; `draw` is told what is new as the page is.
function table(rows, { heads = HEADS, order = "name", total, values = {}, set = {} } = {}) {
  const { gpumon } = load();
  const named = {};
  gpumon.setArguments = (given) => { Object.assign(named, given); };
  const wanted = [];
  gpumon.feed.state = "live";
  gpumon.feed.now = 1000;
  gpumon.feed.server = {};
  const cells = heads.map(({ num, ...data }) => {
    const head = new Element("th", { class: num ? "num" : "" });
    head.textContent = data.col;
    Object.assign(head.dataset, { falls: num ? "1" : "", ...data });
    return head;
  });
  const node = new Element("table", {}, new Element("thead", {}, new Element("tr", {}, ...cells)), new Element("tbody"));
  Object.assign(node.dataset, { rows: "t", order, down: "", empty: "Nothing.", loading: "Loading.", noMatch: "No match.", ...set });
  const box = new Element("div", {}, node);
  const section = new Element("section", { "data-page": "page" }, box);
  const drawn = gpumon.tableRows(node, () => { wanted.push(1); });
  const lines = () => node.tBodies[0].children;
  const found = {
    gpumon, section, node, box, drawn, wanted, lines, named, keys: () => lines().map((line) => line.children[0].textContent),
    head: (name) => node.querySelectorAll("th").find((one) => !one.hidden && one.textContent === name),
    sort: (name) => found.head(name).querySelector("button").click(),
    empty: box.querySelector(".empty"), more: box.querySelector(".more"),
    keep(all, of) {
      const news = gpumon.feed.keep({ figures: {}, values, tables: { t: { order: Object.keys(all), cells: all, total: of || 0 } } });
      drawn.draw(news.tables.get("t"));
    },
  };
  gpumon.redrawPage = () => { drawn.draw(null); };
  if (rows) { found.keep(rows, total); } else { drawn.draw(null); }
  return found;
}

const ROWS = { a: { name: "a2", size: 2048, since: 5 }, b: { name: "a10", size: null, since: { since: 900 } }, c: { name: "a1", size: 4096, since: null } };
const many = (count, from = 0) => Object.fromEntries(Array.from({ length: count }, (_, at) => [`k${from + at}`, { name: `n${from + at}`, size: from + at, since: 0 }]));

test("rows are sorted by their column, names by the numbers in them", () => {
  const t = table(ROWS);
  assert.deepStrictEqual(t.keys(), ["a1", "a2", "a10"]);
  assert.strictEqual(t.head("name").getAttribute("aria-sort"), "ascending");
});

test("a click sorts, a second one reverses, and missing values come last", () => {
  const t = table(ROWS);
  t.sort("size");
  assert.deepStrictEqual(t.keys(), ["a1", "a2", "a10"]);
  assert.deepStrictEqual(t.named, { sort: "-size" }, "and its link names the order");
  t.sort("size");
  assert.deepStrictEqual(t.keys(), ["a2", "a1", "a10"]);
  assert.deepStrictEqual(t.named, { sort: "size" });
  assert.strictEqual(t.head("size").getAttribute("aria-sort"), "ascending");
  assert.strictEqual(t.head("name").getAttribute("aria-sort"), "none");
});

test("a column of numbers may begin with the smallest", () => {
  const t = table(ROWS, { heads: [HEADS[0], { ...HEADS[1], falls: "" }] });
  t.sort("size");
  assert.deepStrictEqual(t.named, { sort: "size" });
});

test("an open duration is sorted by its length", () => {
  const t = table(ROWS);
  t.sort("since");
  assert.deepStrictEqual(t.keys(), ["a10", "a2", "a1"]);
});

test("a row keeps its element, and only changed cells are drawn", () => {
  const t = table(ROWS);
  const [line] = t.lines();
  const [, size] = line.children;
  size.textContent = "untouched";
  t.keep({ ...ROWS, c: { name: "a1", size: 4096, since: 7 } });
  assert.strictEqual(t.lines()[0], line);
  assert.strictEqual(size.textContent, "untouched");
  assert.strictEqual(line.children[2].textContent, "7.0 s");
});

test("rows that are gone leave, and new ones come", () => {
  const t = table(ROWS);
  t.keep({ c: ROWS.c, d: { name: "z", size: 1, since: 1 } });
  assert.deepStrictEqual(t.keys(), ["a1", "z"]);
});

test("of many rows only those scrolled to are in the page", () => {
  const t = table(many(200));
  assert.strictEqual(t.lines().length, 60);
  assert.strictEqual(t.more.textContent, "Show more: 140 of 200 are hidden");
  t.more.click();
  assert.strictEqual(t.lines().length, 120);
  t.more.click();
  t.more.click();
  assert.ok(t.more.hidden);
  assert.strictEqual(t.wanted.length, 0, "all are here");
});

test("sorting and \"Show more\" request missing rows", () => {
  const t = table(many(100), { total: 5000 });
  assert.strictEqual(t.more.textContent, "Show more: 4,940 of 5,000 are hidden");
  t.more.click();
  assert.strictEqual(t.wanted.length, 1);
  t.sort("size");
  assert.strictEqual(t.wanted.length, 2);
  t.keep(many(5000));
  t.sort("size");
  assert.strictEqual(t.wanted.length, 2);
});

test("newest rows are added to known ones", () => {
  const t = table(many(100));
  t.keep(many(10, 95), 105);
  assert.strictEqual(t.gpumon.feed.view.tables.get("t").rows.size, 105);
  t.keep(many(3));
  assert.strictEqual(t.gpumon.feed.view.tables.get("t").rows.size, 3, "these are all");
});

test("a search filters rows, and says if none matches", () => {
  const t = table({ a: { ...ROWS.a, search: "alice net" }, b: { ...ROWS.b, search: "bob vit" } });
  t.drawn.search(" BOB ");
  assert.deepStrictEqual(t.keys(), ["a10"]);
  t.drawn.search("carol");
  assert.strictEqual(t.empty.textContent, "No match.");
  assert.ok(t.node.hidden);
  t.drawn.search("");
  assert.strictEqual(t.lines().length, 2);
});

test("a table says that rows are loading, and then that there are none", () => {
  const t = table(null);
  assert.strictEqual(t.empty.textContent, "Loading.");
  t.keep({});
  assert.strictEqual(t.empty.textContent, "Nothing.");
  assert.ok(!t.empty.hidden);
});

const LOGGED = { col: "logged", by: "logged", kind: "logged", sort: "1", num: true, columns: "names" };
const TRAINED = { a: { name: "a", logged: { loss: 2 } }, b: { name: "b", logged: { loss: "NaN", "__proto__": 1 } }, c: { name: "c", logged: {} } };

test("a column of several names is one for each, and each sorts", () => {
  const t = table(TRAINED, { heads: [HEADS[0], LOGGED], values: { names: ["loss", "constructor"] } });
  assert.deepStrictEqual(t.lines().map((line) => line.children.map((cell) => cell.textContent)), [["a", "2", "–"], ["b", "NaN", "–"], ["c", "–", "–"]]);
  assert.strictEqual(t.lines()[1].find("span")[0].className, "alarm");
  t.sort("loss");
  assert.deepStrictEqual(t.keys(), ["b", "a", "c"], "what diverged is the largest, what is missing the last");
});

test("columns follow their names, and the order is the usual one once its column is gone", () => {
  const values = { names: ["loss"] };
  const t = table(TRAINED, { heads: [HEADS[0], LOGGED], values });
  t.sort("loss");
  values.names = ["accuracy", "loss"];
  t.keep(TRAINED);
  assert.strictEqual(t.head("loss").getAttribute("aria-sort"), "descending");
  values.names = ["accuracy"];
  t.keep(TRAINED);
  assert.strictEqual(t.head("loss"), undefined);
  assert.deepStrictEqual(t.keys(), ["a", "b", "c"]);
  assert.strictEqual(t.lines()[0].children.length, 2);
});

test("the name of a column is text", () => {
  const t = table(TRAINED, { heads: [HEADS[0], LOGGED], values: { names: ["<b>x</b>"] } });
  assert.strictEqual(t.head("<b>x</b>").find("b").length, 0);
});

test("energies of a column have the unit of its largest", () => {
  const heads = [HEADS[0], { col: "energy", by: "energy", kind: "joules", sort: "1", num: true, most: "most" }];
  const values = { most: 1800 };
  const t = table({ a: { name: "a", energy: 1800 } }, { heads, values });
  assert.strictEqual(t.lines()[0].children[1].textContent, "1,800 J");
  values.most = 36000;
  t.keep({ a: { name: "a", energy: 1800 }, b: { name: "b", energy: 36000 } });
  assert.deepStrictEqual(t.lines().map((line) => line.children[1].textContent), ["0.5 Wh", "10.0 Wh"]);
});

test("a value may replace the heading of a column", () => {
  const values = { head: "Steps" };
  const t = table({ a: { name: "a1" } }, { heads: [{ ...HEADS[0], titled: "head" }], values });
  assert.ok(t.head("Steps"));
  values.head = null;
  t.keep({ a: { name: "a1" } });
  assert.ok(t.head("name"));
  assert.deepStrictEqual(t.keys(), ["a1"]);
});

const EPOCHS = [{ col: "epoch", by: "ordinal", kind: "opening", sort: "1", head: "1" }, { col: "size", by: "size", kind: "bytes", sort: "1", num: true }];
const epochs = (from, to) => Object.fromEntries(Array.from({ length: to - from }, (_, at) => [`e${from + at}`, { key: `e${from + at}`, ordinal: from + at, epoch: `${from + at}`, size: 1, search: `${from + at}` }]));
const FOLDS = [[0, 4], [6, 9]].map(([first, last]) => ({ key: `fold ${first}`, first, last, count: last - first + 1, epoch: { opens: `fold ${first}`, text: `${first}–${last}` }, size: 2 }));

// A table of twelve epochs in two rows of neighbors, of which those that stand alone have come.
function folded() {
  const t = table(null, { heads: EPOCHS, order: "epoch", set: { down: "1", folds: "folds" } });
  t.gpumon.feed.keep({ figures: {}, values: {}, tables: { folds: { order: FOLDS.map((one) => one.key), cells: Object.fromEntries(FOLDS.map((one) => [one.key, one])) } } });
  t.keep({ ...epochs(5, 6), ...epochs(10, 12) }, 12);
  return t;
}

test("similar epochs are one row, and closed they request nothing", () => {
  const t = folded();
  assert.deepStrictEqual(t.keys(), ["11", "10", "6–9", "5", "0–4"]);
  assert.ok(t.more.hidden);
  assert.strictEqual(t.wanted.length, 0);
});

test("an opened row requests its missing members", () => {
  const t = folded();
  const button = t.lines()[2].querySelector("button");
  assert.strictEqual(button.getAttribute("aria-expanded"), "false");
  button.told.click({ currentTarget: button });
  assert.strictEqual(t.wanted.length, 1);
  t.keep(epochs(0, 12));
  assert.deepStrictEqual(t.keys(), ["11", "10", "6–9", "9", "8", "7", "6", "5", "0–4"]);
  assert.strictEqual(t.lines()[2].querySelector("button").getAttribute("aria-expanded"), "true");
});

test("other orders and searches show single epochs", () => {
  const t = folded();
  t.sort("epoch");
  assert.deepStrictEqual(t.keys(), ["0–4", "5", "6–9", "10", "11"], "the other direction is no other order");
  t.keep(epochs(0, 12));
  t.sort("size");
  assert.strictEqual(t.keys().length, 12);
  t.drawn.search("7");
  assert.deepStrictEqual(t.keys(), ["7"]);
});

test("a search waits for rows that have not come", () => {
  const t = table(many(3), { total: 10 });
  t.drawn.search("n7");
  assert.deepStrictEqual([t.keys(), t.wanted.length, t.empty.textContent], [[], 1, "No match. 7 rows are still to come …"]);
  t.keep(Object.fromEntries(Object.entries(many(10)).map(([key, row]) => [key, { ...row, search: row.name }])), 10);
  assert.deepStrictEqual(t.keys(), ["n7"]);
  t.drawn.search("n77");
  assert.strictEqual(t.empty.textContent, "No match.");
});

test("only the first letter of a search is a step of the history", () => {
  const t = table(ROWS);
  const steps = [];
  t.gpumon.setArguments = ({ q }, isStep) => { steps.push([q, Boolean(isStep)]); };
  for (const text of ["a", "a1", "", "b"]) { t.drawn.search(text); }
  assert.deepStrictEqual(steps, [["a", true], ["a1", false], [null, false], ["b", true]]);
});
