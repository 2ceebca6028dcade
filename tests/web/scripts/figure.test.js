"use strict";
const assert = require("node:assert");
const test = require("node:test");
const { Element, load } = require("./browser.js");

const NOW = 10000;
const plain = (value) => JSON.parse(JSON.stringify(value)); // of this world's own classes
const settled = async () => { for (let at = 0; at < 6; at += 1) { await new Promise((done) => { setImmediate(done); }); } };

// As the server makes it: lines over some seconds, and a band of epochs that ends with them.
function made(begin, end, more = {}) {
  const x = Array.from({ length: end - begin + 1 }, (_, at) => (begin + at) * 1000);
  const data = [
    { x: [begin * 1000, end * 1000], meta: { what: "band" } },
    { x, y: x.map(() => 50), meta: { what: "line", metric: "gpu.utilization", factor: 100 } },
    { x: [...x], y: x.map(() => 300), meta: { what: "line", metric: "gpu.power", factor: 1 } },
  ];
  return { begin, end, known: { begin: 9000, end: NOW, cut: false }, figure: { data, bands: [[begin, end, 0]], runs: [], layout: { xaxis: {} } }, ...more };
}

// A card with the place of a figure and a choice of windows; the chart only notes what it is told to show.
function card(world, data) {
  const { gpumon } = world;
  const shown = [];
  const zoomed = {};
  gpumon.chart = (place, go) => {
    zoomed.to = go;
    const chart = {
      figure: null, range: null, show(figure, range, now) { chart.figure = figure; shown.push({ figure, range: range && [...range], now: Boolean(now) }); },
      get whole() { return chart.figure.layout.xaxis.range.map((time) => time / 1000); }, clear() { chart.figure = null; },
    };
    return chart;
  };
  gpumon.chartTools = () => new Element("div");
  gpumon.chartParts = () => [];
  const address = {};
  gpumon.setArguments = (changes) => Object.assign(address, changes);
  gpumon.moved = () => {};
  const buttons = ["60", "600", "all"].map((value) => new Element("button", { "data-value": value }));
  const place = new Element("div", { class: "plot", ...data });
  const section = new Element("section", { class: "card" }, new Element("div", {}, new Element("h2"), new Element("div", { "data-usual": "600" }, ...buttons)), place);
  const words = () => section.querySelectorAll(".empty").filter((one) => !one.hidden).map((one) => one.textContent).join();
  return { place, shown, address, buttons, words, zoom: (range) => zoomed.to(range)};
}

async function live(answers, { query = "", values = { uuid: "GPU-1", outline: "" } } = {}) {
  const world = load(["00", "10", "12", "15", "20", "50", "55"], answers);
  const { gpumon } = world;
  const found = card(world, { "data-figure": "api/gpu?gpu=", "data-subject": "uuid", "data-outline": "outline" });
  Object.assign(gpumon.feed, { state: "live", now: NOW, interval: 1 });
  const figure = gpumon.figure(found.place);
  found.back = found.place.parentElement.querySelector(".back");
  const set = (more) => { for (const [name, value] of Object.entries(more)) { gpumon.feed.view.values.set(name, value); } };
  set(values);
  figure.open(new URLSearchParams(query));
  figure.about();
  await settled();
  const tick = (times, lines, whole = false) => {
    gpumon.feed.now = times.at(-1);
    figure.tick({ delta: { series: { t: times, lines, whole } } });
  };
  return { ...found, figure, world, feed: gpumon.feed, set, tick, last: () => found.shown.at(-1) };
}

test("a figure is asked for by its subject and its window, and shows that window", async () => {
  const found = await live([made(9000, NOW)]);
  assert.strictEqual(found.world.asked[0], "api/gpu?gpu=GPU-1&points=1800&window=600");
  assert.deepStrictEqual(found.last().range, [NOW - 600, NOW]);
  assert.ok(found.last().now, "the first one is drawn at once");
  assert.strictEqual(found.buttons[1].getAttribute("aria-pressed"), "true");
  assert.strictEqual(found.words(), "");
});

test("without a subject nothing is asked for", async () => {
  assert.deepStrictEqual((await live([], { values: { uuid: "", outline: "" } })).world.asked, []);
});

test("all lines grow by what is new, in their own units, and gaps stay gaps", async () => {
  const found = await live([made(NOW - 600, NOW)]);
  found.tick([NOW, NOW + 1, NOW + 2], { "gpu.utilization": [0.1, 0.2, null], "gpu.power": [1, 250, 260] });
  const [, utilization, power] = found.last().figure.data;
  assert.deepStrictEqual(plain(power.x.slice(-3)), [NOW * 1000, (NOW + 1) * 1000, (NOW + 2) * 1000], "each time once");
  assert.deepStrictEqual(plain(utilization.y.slice(-3)), [50, 20, null]);
  assert.deepStrictEqual(plain(power.y.slice(-3)), [300, 250, 260]);
  assert.strictEqual(utilization.x.length, utilization.y.length);
  assert.deepStrictEqual(found.last().range, [NOW - 598, NOW + 2]);
});

test("what is older than the window is left out, some points at a time", async () => {
  const found = await live([made(NOW - 600, NOW)]);
  found.tick([NOW + 20], { "gpu.utilization": [0.5], "gpu.power": [300] });
  assert.strictEqual(found.last().figure.data[1].x.length, 602);
  found.tick([NOW + 40], { "gpu.utilization": [0.5], "gpu.power": [300] });
  assert.strictEqual(found.last().figure.data[1].x[0], (NOW - 560) * 1000);
});

test("the band of an epoch that goes on grows with the lines, and that of one that is over does not", async () => {
  const found = await live([made(NOW - 600, NOW)], { values: { uuid: "GPU-1", outline: "[1]" } });
  found.tick([NOW + 1], { "gpu.utilization": [0.5], "gpu.power": [300] });
  assert.strictEqual(found.last().figure.data[0].x[1], (NOW + 1) * 1000);
  const idle = await live([made(NOW - 600, NOW)]);
  idle.tick([NOW + 1], { "gpu.utilization": [0.5], "gpu.power": [300] });
  assert.strictEqual(idle.last().figure.data[0].x[1], NOW * 1000);
});

test("lines that began anew are not put behind the old ones", async () => {
  const found = await live([made(NOW - 600, NOW)]);
  const before = found.shown.length;
  found.tick([NOW + 500], { "gpu.utilization": [0.5], "gpu.power": [300] }, true);
  assert.strictEqual(found.shown.length, before);
});

test("a zoom is in the address, stays while points come, and is asked for with some room", async () => {
  const found = await live([made(9000, NOW), made(9400, 9800)]);
  found.zoom([9500, 9700]);
  assert.deepStrictEqual(plain(found.address), { window: "600", from: "9500.0", to: "9700.0", run: null });
  assert.deepStrictEqual(found.last().range, [9500, 9700]);
  found.world.later.at(-1).done();
  await settled();
  assert.match(found.world.asked[1], /&from=9400&to=9800$/);
  found.tick([NOW + 1], { "gpu.utilization": [0.5], "gpu.power": [300] });
  assert.deepStrictEqual(found.last().range, [9500, 9700]);
  assert.ok(!found.back.hidden);
  assert.strictEqual(found.last().figure.data[1].x.at(-1), 9800000, "what is new is not in it");
});

test("a zoom is kept inside of what there is", async () => {
  const found = await live([made(9000, NOW)]);
  found.zoom([8000, 8200]);
  assert.deepStrictEqual(found.last().range, [9000, 9200]);
});

test("the way back leads to now, and takes the zoom from the address", async () => {
  const found = await live([made(9000, NOW)], { query: "from=9500&to=9700" });
  assert.deepStrictEqual(found.last().range, [9500, 9700]);
  found.back.click();
  assert.deepStrictEqual(plain(found.address), { window: "600", from: null, to: null, run: null });
  assert.deepStrictEqual(found.last().range, [NOW - 600, NOW]);
  assert.ok(found.back.hidden);
});

test("a link beyond what there is shows what there is of it, and says so", async () => {
  const partly = await live([made(9000, NOW)], { query: "from=0&to=9500" });
  assert.match(partly.words(), /only partly sampled/);
  assert.deepStrictEqual(partly.last().range, [9000, 9500]);
  const outside = await live([made(9000, NOW)], { query: "from=100&to=200" });
  assert.match(outside.words(), /There are no samples in the time of this link/);
  assert.ok(outside.place.hidden);
});

test("a time without a line is no figure", async () => {
  const found = await live([made(9000, NOW, { figure: { data: [], bands: [], runs: [], layout: { xaxis: {} } } })]);
  assert.strictEqual(found.words(), "No samples in this period.");
  assert.ok(found.place.hidden);
});

test("a window that is no window is the usual one", async () => {
  assert.match((await live([made(9000, NOW)], { query: "window=-5&from=x&to=1e999" })).world.asked[0], /&window=600$/);
});

test("another subject is another figure, and the one that is shown goes", async () => {
  const found = await live([made(9000, NOW), made(9500, NOW)]);
  found.set({ uuid: "GPU-2" });
  found.figure.about();
  await settled();
  assert.match(found.world.asked[1], /gpu=GPU-2/);
  assert.strictEqual(found.last().figure.data[1].x[0], 9500000);
});

test("a figure that did not come is asked for again", async () => {
  const found = await live([]);
  assert.strictEqual(found.world.asked.length, 1);
  found.figure.about();
  await settled();
  assert.strictEqual(found.world.asked.length, 2);
});

function kept(query = "", answers = []) {
  const world = load(["00", "10", "12", "15", "20", "50", "57"], answers);
  const { gpumon } = world;
  const found = card(world, { "data-kept-figure": "course", "data-loading": "Loading.", "data-empty": "Nothing.", "data-whole": "All" });
  const figure = gpumon.keptFigure(found.place);
  found.back = found.place.parentElement.querySelector(".back");
  figure.open(new URLSearchParams(query));
  const comes = (one) => { gpumon.feed.keep({ values: {}, tables: {}, figures: { course: one } }); figure.about(); };
  return { ...found, figure, comes, world, feed: gpumon.feed, last: () => found.shown.at(-1) };
}

const course = (from, to) => ({ data: [{ showlegend: false, name: "x" }], layout: { xaxis: { range: [from * 1000, to * 1000] } } });

test("a figure of the ledger says that it is on its way, and that there is none", () => {
  const found = kept();
  assert.strictEqual(found.words(), "Loading.");
  assert.ok(found.place.hidden);
  found.comes(null);
  assert.strictEqual(found.words(), "Nothing.");
  found.comes(course(100, 200));
  assert.strictEqual(found.words(), "");
  assert.ok(!found.place.hidden);
  assert.deepStrictEqual([found.last().range, found.last().now], [null, true]);
});

test("a figure of the ledger that comes anew stays under a zoom, and one that did not is not drawn again", () => {
  const found = kept();
  found.comes(course(100, 200));
  found.zoom([120, 140]);
  assert.deepStrictEqual(plain(found.address), { from: "120.0", to: "140.0" });
  found.comes(course(100, 205));
  assert.deepStrictEqual([found.last().range, found.last().now], [[120, 140], false]);
  const before = found.shown.length;
  found.figure.about();
  assert.strictEqual(found.shown.length, before);
  found.back.click();
  assert.deepStrictEqual(plain(found.address), { from: null, to: null });
  assert.strictEqual(found.last().range, null);
});

test("a link shows what a figure of the ledger has of it, and all of it where it has nothing", () => {
  for (const [query, wanted] of [["from=150&to=400", [150, 200]], ["from=500&to=900", null], ["from=9&to=2", null]]) {
    const found = kept(query);
    found.comes(course(100, 200));
    assert.deepStrictEqual(found.last().range, wanted, query);
    assert.strictEqual(found.back.hidden, wanted === null, query);
  }
});

test("of something else a figure of the ledger begins anew", () => {
  const found = kept();
  found.comes(course(100, 200));
  found.feed.view.figures.clear();
  found.figure.clear();
  assert.strictEqual(found.words(), "Loading.");
  found.comes(course(300, 400));
  assert.ok(found.last().now);
});

const zoomable = (from, to, more = {}) => ({ ...course(from, to), finer: "api/run/zoom?id=a&gpu=b", step: 10, ...more });
const fine = (more = {}) => ({ figure: { ...course(100, 200), step: 1, ...more } });
async function settle(found) {
  const count = found.world.asked.length;
  found.world.later.at(-1).done();
  await settled();
  return found.world.asked.slice(count);
}

test("a zoom into a figure of the ledger asks for its finer points, with some room, and shows them", async () => {
  const answer = fine();
  const found = kept("", [answer]);
  found.comes(zoomable(100, 200));
  found.zoom([120, 140]);
  assert.strictEqual(found.last().figure.step, 10, "until they come");
  assert.deepStrictEqual(await settle(found), ["api/run/zoom?id=a&gpu=b&from=110&to=150"]);
  assert.deepStrictEqual([found.last().figure.step, found.last().range], [1, [120, 140]]);
  found.zoom([112, 132]);
  assert.strictEqual(found.last().figure.step, 1, "it still holds");
  found.zoom([160, 180]);
  assert.strictEqual(found.last().figure.step, 10, "it knows nothing of that");
  found.back.click();
  assert.deepStrictEqual([found.last().figure.step, found.last().range], [10, null]);
});

test("finer points come to nothing for a zoom that is over, another device, or where they are none", async () => {
  const late = kept("", [fine()]);
  late.comes(zoomable(100, 200));
  late.zoom([120, 140]);
  const coming = settle(late);
  late.figure.clear();
  late.comes(zoomable(100, 200, { finer: "api/run/zoom?id=a&gpu=c" }));
  await coming;
  assert.strictEqual(late.last().figure.step, 10);
  for (const answer of [fine({ step: 10 }), { figure: null }]) {
    const found = kept("", [answer]);
    found.comes(zoomable(100, 200));
    found.zoom([120, 140]);
    await settle(found);
    assert.strictEqual(found.last().figure.step, 10);
  }
  const still = kept();
  still.comes(course(100, 200));
  still.zoom([120, 140]);
  assert.deepStrictEqual([still.world.later, still.world.asked], [[], []], "a figure without them asks for none");
});

test("while a run goes on, finer points that reach to its end are asked for anew, and others stay", async () => {
  for (const [zoom, asks] of [[[120, 140], 1], [[180, 200], 2]]) {
    const found = kept("", [fine(), fine(), fine()]);
    found.comes(zoomable(100, 200));
    found.zoom(zoom);
    await settle(found);
    const timers = found.world.later.length;
    found.comes(zoomable(100, 205));
    assert.strictEqual(found.last().figure.step, 1);
    assert.strictEqual(found.world.later.length - timers, asks - 1);
  }
});

test("a link to a part of a figure of the ledger asks for its finer points", async () => {
  const found = kept("from=120&to=140", [fine()]);
  found.comes(zoomable(100, 200));
  assert.deepStrictEqual(await settle(found), ["api/run/zoom?id=a&gpu=b&from=110&to=150"]);
  assert.strictEqual(found.last().figure.step, 1);
});
