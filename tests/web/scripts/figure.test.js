"use strict";
const assert = require("node:assert");
const test = require("node:test");
const { Element, load } = require("./browser.js");

const NOW = 10000;
const plain = (value) => JSON.parse(JSON.stringify(value)); // of this world's own classes
const settled = async () => { for (let at = 0; at < 6; at += 1) { await new Promise((done) => { setImmediate(done); }); } };

// As the server makes it: two panels over some seconds, and a run with an epoch that ends with them.
function made(begin, end, more = {}) {
  const times = Array.from({ length: end - begin + 1 }, (_, at) => begin + at);
  const panel = (key, unit, value) => ({ key, title: key, unit, zero: true, limits: [], lines: [{ x: 0, mean: times.map(() => value) }] });
  const panels = [panel("gpu.utilization", "ratio", 0.5), panel("gpu.power", "watts", 300)];
  const all = panels.map(({ key, title }) => ({ key, title, usual: true }));
  const runs = [{ id: "a", name: "a", user: "alice", bands: [[begin, end, 0]], phases: [] }];
  const chart = { axis: "time", begin, end, interval: 1, step: 0, times: [times], panels, all, runs, events: [], held: [[begin, end, "alice"]] };
  return { begin, end, known: { begin: 9000, end: NOW, cut: false }, chart: { ...chart, ...more } };
}

// A card with the place of a chart and a choice of windows; the chart only notes what it is told to show.
function card(world, data) {
  const { gpumon } = world;
  const shown = [];
  const zoomed = {};
  gpumon.chartPanels = (place, go) => {
    zoomed.to = go;
    const chart = {
      doc: null, range: null, show(doc, range, now) { chart.doc = doc; shown.push({ doc, range: range && [...range], now: Boolean(now) }); },
      clear() { chart.doc = null; },
    };
    return chart;
  };
  gpumon.overview = () => ({ node: new Element("div"), show() {} });
  const choices = { keys: null };
  gpumon.panelChoice = (key, usual, changed) => {
    let all = [];
    return {
      node: new Element("div"), open() {}, offer(found) { all = found; }, get isKnown() { return all.length > 0; }, get wanted() { return choices.keys; },
      shown: () => choices.keys || usual(all), choose(keys) { choices.keys = keys; changed(); },
    };
  };
  const address = {};
  gpumon.setArguments = (changes) => Object.assign(address, changes);
  gpumon.redrawPage = () => {};
  const buttons = ["60", "600", "all"].map((value) => new Element("button", { "data-value": value }));
  const place = new Element("div", { class: "plot", ...data });
  const section = new Element("section", { class: "card" }, new Element("div", { class: "cardhead" }, new Element("h2"), new Element("div", { "data-usual": "600" }, ...buttons)), place);
  const words = () => section.querySelectorAll(".empty").filter((one) => !one.hidden).map((one) => one.textContent).join();
  return { place, shown, address, buttons, words, zoom: (range) => zoomed.to(range)};
}

async function live(answers, { query = "", values = { uuid: "GPU-1", outline: "" } } = {}) {
  const world = load(answers);
  const { gpumon } = world;
  const found = card(world, { "data-figure": "api/gpu?gpu=", "data-subject": "uuid", "data-outline": "outline", "data-panels": "gpu.utilization gpu.power", "data-state": "state" });
  Object.assign(gpumon.feed, { state: "live", now: NOW, interval: 1 });
  const figure = gpumon.liveFigure(found.place);
  found.back = found.place.parentElement.querySelector(".back");
  const set = (more) => { for (const [name, value] of Object.entries(more)) { gpumon.feed.view.values.set(name, value); } };
  set(values);
  figure.open(new URLSearchParams(query));
  figure.about();
  await settled();
  const tick = (times, lines, whole = false, every = 1) => {
    gpumon.feed.now = times.at(-1);
    figure.tick({ delta: { series: { t: times, lines, whole, every } } });
  };
  return { ...found, figure, world, feed: gpumon.feed, set, tick, last: () => found.shown.at(-1) };
}

test("a chart is requested for its subject and window, and shows that window", async () => {
  const found = await live([made(9000, NOW)]);
  assert.strictEqual(found.world.asked[0], "api/gpu?gpu=GPU-1&points=900&panels=gpu.utilization%2Cgpu.power&window=600");
  assert.deepStrictEqual(found.last().range, [NOW - 600, NOW]);
  assert.ok(found.last().now, "the first one is drawn at once");
  assert.strictEqual(found.buttons[1].getAttribute("aria-pressed"), "true");
  assert.strictEqual(found.words(), "");
});

test("without a subject nothing is requested", async () => {
  assert.deepStrictEqual((await live([], { values: { uuid: "", outline: "" } })).world.asked, []);
});

test("all lines grow with new points, and gaps stay gaps", async () => {
  const found = await live([made(NOW - 600, NOW)]);
  found.tick([NOW, NOW + 1, NOW + 2], { "gpu.utilization": [0.1, 0.2, null], "gpu.power": [1, 250, 260] });
  const [utilization, power] = found.last().doc.panels.map((panel) => panel.lines[0]);
  assert.strictEqual(utilization.x, power.x, "they share their times");
  assert.deepStrictEqual(plain(power.x.slice(-3)), [NOW, NOW + 1, NOW + 2], "each time once");
  assert.deepStrictEqual(plain(utilization.mean.slice(-3)), [0.5, 0.2, null]);
  assert.deepStrictEqual(plain(power.mean.slice(-3)), [300, 250, 260]);
  assert.deepStrictEqual(found.last().range, [NOW - 598, NOW + 2]);
});

test("points of a fast source that come less often have no gaps between them", async () => {
  const found = await live([made(NOW - 600, NOW, { interval: 0.1 })]);
  assert.match(found.place.closest(".card").textContent, /100 ms samples/);
  found.tick([NOW + 0.5, NOW + 1, NOW + 1.5], { "gpu.utilization": [0.1, 0.2, 0.3], "gpu.power": [1, 2, 3] }, false, 0.5);
  const { doc } = found.last();
  const [line] = doc.panels[0].lines;
  assert.deepStrictEqual(plain(found.world.gpumon.gapsOf(line, NOW, NOW + 1.5, found.world.gpumon.longestGap(line, doc.interval))), []);
});

test("points of two paces each count for their time", async () => {
  const { gpumon } = (await live([made(NOW - 600, NOW)])).world;
  // A second of tenths at 1, a gap of half a second, another second at 1; then it grew by three seconds of halves at 4.
  const tenths = (from) => Array.from({ length: 11 }, (_, at) => from + at / 10);
  const x = [...tenths(0), ...tenths(1.5), ...Array.from({ length: 6 }, (_, at) => 3 + at / 2)];
  const line = { x, mean: x.map((at) => (at <= 2.5 ? 1 : 4)), made: 2.5, every: 0.5 };
  const { mean, area } = gpumon.lineFacts(line, 0, 10, gpumon.longestGap(line, 0.1));
  assert.ok(Math.abs(area - (2 * 1 + 3 * 4)) < 1e-6, `${area}`);
  assert.ok(Math.abs(mean - area / 5) < 1e-6, `${mean}`);
  assert.deepStrictEqual(plain(gpumon.gapsOf(line, 0, 10, gpumon.longestGap(line, 0.1))), [[1, 1.5]]);
});

// Cells of 300 s, of which the newest is known for 60.
function coarse(more = {}) {
  const found = made(NOW - 600, NOW, { step: 300, coarse: [], ...more });
  const times = [NOW - 790, NOW - 490, NOW - 190, NOW + 110]; // the newest began 40 s ago
  found.chart.times = [times];
  for (const { lines: [line] } of found.chart.panels) {
    Object.assign(line, { mean: times.map(() => 0.8), low: times.map(() => 0.2), high: times.map(() => 0.9), step: 300, filled: 40 });
  }
  return found;
}

test("new samples go into their cell, weighed by time", async () => {
  const found = await live([coarse()]);
  found.tick([NOW, NOW + 1, NOW + 2], { "gpu.utilization": [0, 0, 0], "gpu.power": [0, 0, null] });
  const { gpumon } = found.world;
  const [line, power] = found.last().doc.panels.map((panel) => panel.lines[0]);
  assert.strictEqual(line.x.length, 4, "the sample at the end of what was known is in it already");
  assert.ok(Math.abs(line.mean[3] - 0.8 * 40 / 42) < 1e-9);
  assert.ok(Math.abs(power.mean[3] - 0.8 * 40 / 41) < 1e-9);
  assert.deepStrictEqual(plain([line.low[3], line.high[3]]), [0, 0.9]);
  const { mean, area } = gpumon.lineFacts(line, 0, 2 * NOW, 900);
  assert.ok(Math.abs(mean - (0.8 * 940) / 942) < 1e-9, "two seconds are two seconds of an hour");
  assert.ok(Math.abs(area - 0.8 * 940) < 1e-6);
});

test("the newest value is that of the newest cell, however short it is", async () => {
  const { gpumon } = (await live([made(NOW - 600, NOW)])).world;
  const line = { x: [NOW - 190, NOW + 110], mean: [0.8, 0.2], low: [0.7, 0.1], high: [0.9, 0.3], step: 300, filled: 40 };
  const { last, area, low } = gpumon.lineFacts(line, NOW - 600, NOW, 900);
  assert.deepStrictEqual([last, low], [0.2, 0.1]);
  assert.ok(Math.abs(area - (0.8 * 300 + 0.2 * 40)) < 1e-6, `${area}`);
  assert.strictEqual(gpumon.lineFacts(line, NOW - 600, NOW - 100, 900).last, 0.8, "a view that ends before it has none of it");
});

test("a cell without samples stays a gap", async () => {
  const found = await live([coarse()]);
  found.tick([NOW + 259, NOW + 260, NOW + 261], { "gpu.utilization": [0.5, 0.1, 0.2], "gpu.power": [1, 2, 3] });
  found.tick([NOW + 900], { "gpu.utilization": [0.7], "gpu.power": [4] });
  const line = found.last().doc.panels[0].lines[0];
  assert.deepStrictEqual(plain(line.x.slice(4)), [NOW + 410, NOW + 710, NOW + 1010]);
  assert.deepStrictEqual(plain(line.mean.slice(5)), [null, 0.7]);
  assert.ok(Math.abs(line.mean[4] - 0.15) < 1e-9);
  assert.strictEqual(line.filled, 1, "a sample after an outage stands for itself alone");
});

test("a chart says where only longer means are kept", async () => {
  const found = await live([made(NOW - 600, NOW, { step: 10, coarse: [[NOW - 600, NOW - 300, 300]] })]);
  const key = found.place.parentElement.querySelector(".cells").textContent;
  const clock = found.world.gpumon.text.clock(NOW - 300, NOW);
  assert.strictEqual(key, `means of 10 s, 5 min before ${clock}, shade: lowest to highest`);
  const { doc } = found.last();
  const line = { x: [9455, 9755], mean: [1, 1], step: 10 };
  assert.deepStrictEqual(plain(found.world.gpumon.coveredTime(doc, line, 0)), [9400, 9600], "within the stretch and its cell");
  assert.deepStrictEqual(plain(found.world.gpumon.coveredTime(doc, line, 1)), [9750, 9760]);
});

test("the time before a first value is a gap", () => {
  const { gpumon } = load();
  const line = { x: [5, 15, 25, 35, 45, 55, 65], mean: [null, null, 1, null, null, 1, null], step: 10 };
  assert.deepStrictEqual(plain(gpumon.gapsOf(line, 0, 70, 30)), [[0, 20], [30, 50]], "its end is told by how old it is");
  assert.deepStrictEqual(plain(gpumon.gapsOf(line, 0, 12, 30)), [[0, 20]], "a part of it, of a view within it");
  assert.deepStrictEqual(plain(gpumon.gapsOf(line, 32, 41, 30)), [[30, 50]]);
  assert.deepStrictEqual(plain(gpumon.gapsOf({ x: [1, 2, 60, 61], mean: [1, 1, 1, 1] }, 0, 70, 3)), [[2, 60]]);
  assert.deepStrictEqual(plain(gpumon.mergedSpans([[30, 50], [0, 20], [10, 25], [25, 28]])), [[0, 28], [30, 50]]);
});

test("points that come while a chart is requested are in it", async () => {
  const found = await live([made(NOW - 600, NOW), made(NOW - 600, NOW + 1)]);
  found.zoom(null);
  found.world.later.at(-1).done();
  Object.assign(found.feed.view.series, {
    t: [NOW + 1, NOW + 2, NOW + 3], lines: new Map([["gpu.utilization", [0.1, 0.2, 0.3]], ["gpu.power", [100, 200, null]]]),
  });
  await settled();
  const { doc } = found.last();
  const [utilization, power] = doc.panels.map((panel) => panel.lines[0]);
  assert.deepStrictEqual(plain(utilization.x.slice(-3)), [NOW + 1, NOW + 2, NOW + 3]);
  assert.deepStrictEqual(plain([utilization.mean.slice(-3), power.mean.slice(-3)]), [[0.5, 0.2, 0.3], [300, 200, null]]);
  assert.deepStrictEqual([doc.end, doc.runs[0].bands[0][1]], [NOW + 3, NOW + 3]);
});

test("a chart without a usual panel is requested once", async () => {
  const one = made(NOW - 600, NOW);
  const panels = one.chart.panels.slice(1);
  Object.assign(one.chart, { panels, all: one.chart.all.slice(1) });
  const found = await live([one]);
  found.tick([NOW + 1], { "gpu.power": [250] });
  assert.strictEqual(found.world.asked.length, 1);
  assert.strictEqual(found.last().doc.panels[0].lines[0].mean.at(-1), 250);
});

test("the open epoch and the last holder grow with the lines", async () => {
  const found = await live([made(NOW - 600, NOW, { held: [[NOW - 600, NOW - 300, "bob"], [NOW - 300, NOW, "alice"]] })]);
  found.tick([NOW + 1], { "gpu.utilization": [0.5], "gpu.power": [300] });
  const { doc } = found.last();
  assert.strictEqual(doc.runs[0].bands[0][1], NOW + 1);
  assert.deepStrictEqual(plain(doc.held.map((one) => one[1])), [NOW - 300, NOW + 1]);
  const over = await live([made(NOW - 600, NOW, { runs: [{ id: "a", name: "a", user: "", bands: [[NOW - 600, NOW - 100, 0]], phases: [] }] })]);
  over.tick([NOW + 1], { "gpu.utilization": [0.5], "gpu.power": [300] });
  assert.strictEqual(over.last().doc.runs[0].bands[0][1], NOW - 100);
});

test("an old chart ends with its data, and the rest is unknown", async () => {
  const found = await live([made(NOW - 600, NOW)]);
  assert.strictEqual(found.last().doc.until, NOW);
  assert.strictEqual(found.last().doc.silent, null);
  Object.assign(found.feed, { state: "stale", age: 30, heard: performance.now() });
  found.figure.tick(null);
  const { doc, range } = found.last();
  assert.ok(doc.until >= NOW + 30 && doc.end === NOW, "the line ends before");
  assert.ok(range[1] >= NOW + 30);
  assert.strictEqual(doc.silent.title, "stale");
});

test("a chart of a lost GPU knows why and since when", async () => {
  const state = { state: "lost", lasts: true, silent: { title: "lost", age: null } };
  const found = await live([made(NOW - 600, NOW)], { values: { uuid: "GPU-1", outline: "", state } });
  assert.strictEqual(found.last().doc.silent.title, "lost");
  found.tick([NOW + 1, NOW + 2], { "gpu.utilization": [null, null], "gpu.power": [null, null] });
  const { doc } = found.last();
  const line = doc.panels[0].lines[0];
  assert.deepStrictEqual(plain(found.world.gpumon.unknownSince(line, doc.until, 3, true)), { from: NOW, age: 2 });
  Object.assign(found.feed, { state: "stale", age: 30, heard: performance.now() });
  found.figure.tick(null);
  assert.strictEqual(found.last().doc.silent.title, "lost", "which lasts");
});

test("the end of a recording is not silent", async () => {
  const found = await live([made(NOW - 600, NOW)]);
  found.feed.state = "ended";
  found.figure.tick(null);
  assert.deepStrictEqual([found.last().doc.silent, found.last().doc.until], [null, NOW]);
});

test("a line is unknown once three samples are missing or its GPU is silent", () => {
  const { gpumon } = load();
  const line = (mean) => ({ x: [1, 2, 3], mean });
  const unknown = (...given) => { const found = gpumon.unknownSince(...given); return found && [found.from, found.age]; };
  assert.strictEqual(unknown(line([1, 1, 1]), 5, 3, false), null);
  assert.deepStrictEqual(unknown(line([1, 1, 1]), 7, 3, false), [3, 4]);
  assert.deepStrictEqual(unknown(line([1, 1, null]), 3, 3, true), [2, 1]);
  assert.deepStrictEqual(unknown({ ...line([1, 1, null]), step: 1 }, 3, 3, true), [2.5, 0.5]);
  assert.deepStrictEqual(unknown(line([null, null, null]), 3, 3, true), [1, NaN]);
  assert.strictEqual(unknown(line([null, null, null]), 30, 3, false), null, "which is said in other words");
});

test("the time of a run before its first and after its last sample was not seen", () => {
  const { gpumon } = load();
  const line = { x: [10, 11, 12, 13, 14], mean: [null, 1, null, 1, null], step: 1 };
  const ends = (run) => plain(gpumon.endsUnseen(line, run, 3));
  assert.deepStrictEqual(ends({ begin: 2, end: 20 }), [[2, 10.5], [13.5, 20]]);
  assert.deepStrictEqual(ends({ begin: 8, end: 16 }), [], "no longer than a sample that is late");
  assert.deepStrictEqual(ends({ begin: 2, end: 20, goesOn: true }), [[2, 10.5]], "what comes next may be on its way");
  assert.deepStrictEqual(plain(gpumon.endsUnseen({ ...line, mean: line.mean.map(() => null) }, { begin: 2, end: 20 }, 3)), [[2, 20]]);
});

test("logged values and lists are hatched where the document says so", () => {
  const { gpumon } = load();
  const line = { x: [10, 20, 20, 40, 50], mean: [2, 1.5, null, 1.2, 1] };
  const unseen = (doc, ...lines) => plain(gpumon.unseenIn(doc, { lines, lists: lines.length > 1 }, { from: 0, to: 60 }, 3));
  assert.deepStrictEqual(unseen({ unseen: [[21, 33], [70, 80]] }, { ...line, joined: true }), [[21, 33]]);
  assert.deepStrictEqual(unseen({}, { ...line, joined: true }), [], "an epoch that broke off, or a loss that is NaN, was seen");
  const gap = { x: [1, 2, 30, 31], mean: [1, 1, 1, 1] };
  assert.deepStrictEqual(unseen({ unseen: [] }, gap, { ...gap, x: [1, 2, 3, 31] }), [], "another GPU was sampled in it");
  assert.deepStrictEqual(unseen({ unseen: [] }, gap), [[2, 30]]);
});

test("the newest samples have the color of the last holder", () => {
  const { gpumon } = load();
  const colors = (held, goesOn, to) => plain(gpumon.heldSpans({ held, goesOn, interval: 1 }, { from: 0, to }));
  const held = [[10, 36, "root"]];
  assert.deepStrictEqual(colors(held, true, 38), [[0, 10, ""], [10, 36, "root"], [36, 38, "root"]]);
  assert.deepStrictEqual(colors(held, true, 516), [[0, 10, ""], [10, 36, "root"], [36, 516, ""]]);
  assert.deepStrictEqual(colors(held, false, 38), [[0, 10, ""], [10, 36, "root"], [36, 38, ""]]);
  assert.deepStrictEqual(colors([], true, 5), [[0, 5, ""]]);
});

test("few validation losses are dots, many a line", () => {
  const { gpumon } = load();
  const drawn = (epochs) => {
    const count = { dots: 0, lines: 0, dashed: 0 };
    const pen = { beginPath() {}, moveTo() {}, stroke() {}, fill() {}, closePath() {},
      lineTo() { count.lines += 1; }, arc() { count.dots += 1; },
      setLineDash(dash) { count.dashed += Number(dash.length > 0); } };
    const x = Array.from({ length: epochs }, (_, at) => at), mean = x.map((at) => 1 / (at + 1));
    const scale = { x: (at) => (at * 600) / epochs, y: (value) => value * 100, from: 0, to: epochs };
    gpumon.drawTrace(pen, { x, mean, look: "dots" }, scale, 2, () => "red");
    return count;
  };
  assert.deepStrictEqual(drawn(50), { dots: 50, lines: 49, dashed: 1 });
  assert.deepStrictEqual(drawn(500), { dots: 0, lines: 499, dashed: 0 });
});

test("replaced lines are not appended", async () => {
  const found = await live([made(NOW - 600, NOW)]);
  const before = found.shown.length;
  found.tick([NOW + 500], { "gpu.utilization": [0.5], "gpu.power": [300] }, true);
  assert.strictEqual(found.shown.length, before);
});

test("a zoom is in the address, stays while points come, and is requested with a margin", async () => {
  const found = await live([made(9000, NOW), made(9450, 9750)]);
  found.zoom([9500, 9700]);
  assert.deepStrictEqual(plain(found.address), { window: "600", from: "9500.0", to: "9700.0"});
  assert.deepStrictEqual(found.last().range, [9500, 9700]);
  found.world.later.at(-1).done();
  await settled();
  assert.match(found.world.asked[1], /&from=9450&to=9750$/);
  found.tick([NOW + 1], { "gpu.utilization": [0.5], "gpu.power": [300] });
  assert.deepStrictEqual(found.last().range, [9500, 9700]);
  assert.ok(!found.back.hidden);
  assert.strictEqual(found.last().doc.panels[0].lines[0].x.at(-1), 9750, "what is new is not in it");
});

test("a zoom stays within the samples", async () => {
  const found = await live([made(9000, NOW)]);
  found.zoom([8000, 8200]);
  assert.deepStrictEqual(found.last().range, [9000, 9200]);
});

test("Back to live ends the zoom", async () => {
  const found = await live([made(9000, NOW)], { query: "from=9500&to=9700" });
  assert.deepStrictEqual(found.last().range, [9500, 9700]);
  found.back.click();
  assert.deepStrictEqual(plain(found.address), { window: "600", from: null, to: null});
  assert.deepStrictEqual(found.last().range, [NOW - 600, NOW]);
  assert.ok(found.back.hidden);
});

test("a link beyond the samples shows those that there are, and says so", async () => {
  const partly = await live([made(9000, NOW)], { query: "from=0&to=9500" });
  assert.match(partly.words(), /only partly sampled/);
  assert.deepStrictEqual(partly.last().range, [9000, 9500]);
  const outside = await live([made(9000, NOW)], { query: "from=100&to=200" });
  assert.match(outside.words(), /There are no samples in the time of this link/);
  assert.ok(outside.place.hidden);
});

test("a time without lines has no chart", async () => {
  const found = await live([made(9000, NOW, { panels: [] })]);
  assert.strictEqual(found.words(), "No samples in this period.");
  assert.ok(found.place.hidden);
});

test("an invalid window is the usual one", async () => {
  assert.match((await live([made(9000, NOW)], { query: "window=-5&from=x&to=1e999" })).world.asked[0], /&window=600$/);
});

test("another subject replaces the chart", async () => {
  const found = await live([made(9000, NOW), made(9500, NOW)]);
  found.set({ uuid: "GPU-2" });
  found.figure.about();
  await settled();
  assert.match(found.world.asked[1], /gpu=GPU-2/);
  assert.strictEqual(found.last().doc.panels[0].lines[0].x[0], 9500);
});

test("a failed request is repeated", async () => {
  const found = await live([]);
  assert.strictEqual(found.world.asked.length, 1);
  found.figure.about();
  await settled();
  assert.strictEqual(found.world.asked.length, 2);
});

function kept(query = "", answers = []) {
  const world = load(answers);
  const { gpumon } = world;
  const found = card(world, { "data-kept-figure": "course", "data-loading": "Loading.", "data-empty": "Nothing.", "data-whole": "All" });
  const figure = gpumon.keptFigure(found.place);
  found.back = found.place.parentElement.querySelector(".back");
  figure.open(new URLSearchParams(query));
  const comes = (one) => { gpumon.feed.keep({ values: {}, tables: {}, figures: { course: one } }); figure.about(); };
  return { ...found, figure, comes, world, feed: gpumon.feed, last: () => found.shown.at(-1) };
}

const course = (from, to) => made(from, to).chart;

test("a chart of the ledger says that it is loading, and that there is none", () => {
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

test("a chart of the ledger keeps its zoom when it comes again", () => {
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

test("a link is limited to a chart of the ledger", () => {
  for (const [query, wanted] of [["from=150&to=400", [150, 200]], ["from=500&to=900", null], ["from=9&to=2", null]]) {
    const found = kept(query);
    found.comes(course(100, 200));
    assert.deepStrictEqual(found.last().range, wanted, query);
    assert.strictEqual(found.back.hidden, wanted === null, query);
  }
});

test("a cleared chart of the ledger starts again", () => {
  const found = kept();
  found.comes(course(100, 200));
  found.feed.view.figures.clear();
  found.figure.clear();
  assert.strictEqual(found.words(), "Loading.");
  found.comes(course(300, 400));
  assert.ok(found.last().now);
});

test("a chart of a run is unknown since the last answer", () => {
  const found = kept();
  Object.assign(found.feed, { state: "live", now: 200, interval: 1 });
  found.comes({ ...course(100, 200), goesOn: true });
  assert.strictEqual(found.last().doc.silent, undefined);
  Object.assign(found.feed, { state: "stale", age: 30, heard: found.world.performance.now() });
  found.figure.about();
  const { doc } = found.last();
  assert.strictEqual(doc.silent.title, "stale");
  assert.ok(doc.until >= 230 && doc.end >= 230, "what is not known is no empty place");
  found.figure.tick(null);
  assert.ok(found.last().doc.until >= doc.until);
  found.feed.state = "live";
  found.figure.about();
  assert.strictEqual(found.last().doc.silent, undefined);
});

const zoomable = (from, to, more = {}) => ({ ...course(from, to), finer: "api/run/zoom?id=a&gpu=b", step: 10, ...more });
const fine = (more = {}) => ({ chart: { ...course(100, 200), step: 1, ...more } });
async function settle(found) {
  const count = found.world.asked.length;
  found.world.later.at(-1).done();
  await settled();
  return found.world.asked.slice(count);
}

test("a zoom requests finer points with a margin, and shows them", async () => {
  const answer = fine();
  const found = kept("", [answer]);
  found.comes(zoomable(100, 200));
  found.zoom([120, 140]);
  assert.strictEqual(found.last().doc.step, 10, "until they come");
  assert.deepStrictEqual(await settle(found), ["api/run/zoom?id=a&gpu=b&from=115&to=145"]);
  assert.deepStrictEqual([found.last().doc.step, found.last().range], [1, [120, 140]]);
  found.zoom([117, 135]);
  assert.strictEqual(found.last().doc.step, 1, "it still holds");
  found.zoom([160, 180]);
  assert.strictEqual(found.last().doc.step, 10, "it knows nothing of that");
  found.back.click();
  assert.deepStrictEqual([found.last().doc.step, found.last().range], [10, null]);
});

test("finer points of another zoom or device are ignored", async () => {
  const late = kept("", [fine()]);
  late.comes(zoomable(100, 200));
  late.zoom([120, 140]);
  const coming = settle(late);
  late.figure.clear();
  late.comes(zoomable(100, 200, { finer: "api/run/zoom?id=a&gpu=c" }));
  await coming;
  assert.strictEqual(late.last().doc.step, 10);
  for (const answer of [fine({ step: 10 }), { chart: null }]) {
    const found = kept("", [answer]);
    found.comes(zoomable(100, 200));
    found.zoom([120, 140]);
    await settle(found);
    assert.strictEqual(found.last().doc.step, 10);
  }
  const still = kept();
  still.comes(course(100, 200));
  still.zoom([120, 140]);
  assert.deepStrictEqual([still.world.later, still.world.asked], [[], []], "a figure without them asks for none");
});

test("finer points at the end of an open run are requested again", async () => {
  for (const [zoom, asks] of [[[120, 140], 1], [[180, 200], 2]]) {
    const found = kept("", [fine(), fine(), fine()]);
    found.comes(zoomable(100, 200));
    found.zoom(zoom);
    await settle(found);
    const timers = found.world.later.length;
    found.comes(zoomable(100, 205));
    assert.strictEqual(found.last().doc.step, 1);
    assert.strictEqual(found.world.later.length - timers, asks - 1);
  }
});

test("a link with a zoom requests finer points", async () => {
  const found = kept("from=120&to=140", [fine()]);
  found.comes(zoomable(100, 200));
  assert.deepStrictEqual(await settle(found), ["api/run/zoom?id=a&gpu=b&from=115&to=145"]);
  assert.strictEqual(found.last().doc.step, 1);
});

test("an axis spans several degrees, needs a value, and has two ticks", () => {
  const { gpumon: g } = load();
  const panel = (more) => ({ unit: "celsius", zero: false, limits: [], ...more });
  const range = (one, low, high) => g.valueRange(one, [{ low, high }]);
  const [low, high, isKnown] = range(panel(), 49, 50);
  assert.ok(high - low >= 10 && isKnown, "a step of the sensor fills the panel");
  assert.deepStrictEqual(plain(range(panel(), Infinity, -Infinity)), [0, 1, false]);
  assert.strictEqual(range(panel({ unit: "watts", zero: true, limits: [{ at: 700, text: "" }] }), Infinity, -Infinity)[2], true);
  assert.strictEqual(range(panel({ unit: "watts", zero: true }), Infinity, -Infinity)[2], false);
  for (const [from, to] of [[0.27, 7.4], [44.4, 55.8], [0.9, 1.6]]) { assert.ok(g.axisScale.ticks("plain", from, to).length > 1, `${from} to ${to}`); }
});

test("the note on a thin line has a row of its own on a phone", () => {
  const { gpumon } = load();
  const line = { x: [1, 2], mean: [2 ** 30, 2 ** 30] };
  const panel = { title: "", unit: "bytes", top: 80 * 2 ** 30, limits: [], lines: [line, { ...line, look: "thin", label: "allocated" }] };
  const said = (isSmall) => gpumon.gutterText({ axis: "time" }, { panel, facts: panel.lines.map((one) => gpumon.lineFacts(one, 0, 3, Infinity)), gone: [], isSmall }, true)[2].replaceAll("\u00a0", " ");
  assert.deepStrictEqual([said(false), said(true)], ["of 80.0 GiB · peak 1.0 GiB · thin line: allocated", "peak 1.0 GiB"]);
  assert.strictEqual(gpumon.smallPanelNote({ axis: "time" }, { panel, isNow: false }), "thin\u00a0line:\u00a0allocated");
});

test("energy with a gap in the view is a lower bound", () => {
  const { gpumon } = load();
  const energy = (line, from, to) => gpumon.panelContext({ unit: "watts", limits: [] }, gpumon.lineFacts(line, from, to, gpumon.longestGap(line, 1)), false).replaceAll("\u00a0", " ");
  const x = Array.from({ length: 60 }, (_, at) => at);
  assert.match(energy({ x, mean: x.map(() => 3600) }, 0, 60), / · 59\.0 Wh$/);
  const missing = { x, mean: x.map((at) => (at > 20 && at < 40 ? null : 3600)) };
  assert.match(energy(missing, 0, 60), / · ≥ 39\.0 Wh$/);
  assert.match(energy(missing, 0, 20), / · 20\.0 Wh$/, "the view has no gap");
  const away = x.filter((at) => at <= 20 || at >= 40);
  assert.match(energy({ x: away, mean: away.map(() => 3600) }, 0, 60), / · ≥ 39\.0 Wh$/);
  const cells = { x: [150, 450, 750], mean: [3600, null, 3600], step: 300 };
  assert.match(energy(cells, 0, 900), / · ≥ 600\.0 Wh$/);
});

test("a panel says NaN if the view reaches it", () => {
  const { gpumon } = load();
  const line = { x: [1, 2, 3], mean: [2, 1, null], odd: [3, "NaN"] };
  const panel = { title: "loss", unit: "plain", limits: [], lines: [line, { ...line, look: "dots", label: "val_loss" }] };
  const said = (to) => {
    const facts = panel.lines.map((one) => gpumon.lineFacts(one, 0, to, Infinity));
    return plain(gpumon.gutterText({ axis: "time", goesOn: true }, { panel, facts, gone: [null, null], isNow: true }, true));
  };
  assert.deepStrictEqual(said(3), ["loss", "NaN", "val_loss NaN"]);
  assert.deepStrictEqual(said(2.5).slice(0, 2), ["loss", "1"]);
  panel.lines[1].label = "loss, end of epoch";
  assert.strictEqual(said(2.5)[2], "end of epoch 1", "the panel has its name");
});

test("the counted mean replaces that of the points for the whole", () => {
  const { gpumon } = load();
  const facts = { low: 0, high: 1, mean: 0.33, last: 0.3, seen: 9, area: 0 };
  const said = (more, isWhole) => gpumon.panelContext({ unit: "ratio", limits: [], ...more }, facts, isWhole);
  assert.deepStrictEqual([said({ whole: 0.36 }, true), said({ whole: 0.36 }, false), said({}, true)], ["mean 36 %", "mean 33 %", "mean 33 %"]);
  const watts = (isWhole) => gpumon.panelContext({ unit: "watts", limits: [], counted: true, whole: 500 }, { seen: 3, mean: 505, high: 520, area: 7200 }, isWhole);
  assert.deepStrictEqual([watts(true), watts(false)], ["mean 500 W", "mean 505 W · 2.0 Wh"]);
  const bytes = (high, isWhole) => gpumon.panelContext({ unit: "bytes", limits: [], top: 80 * 2 ** 30, whole: 42 * 2 ** 30 }, { seen: 3, high: high * 2 ** 30 }, isWhole);
  assert.strictEqual(gpumon.panelContext({ unit: "bytes", limits: [], top: 80 * 2 ** 30 }, { seen: 3, high: 42 * 2 ** 30 }, true, true), "peak 42.0 GiB", "what the axis says too has no room on a phone");
  const shaded = (isSmall) => gpumon.panelContext({ below: "mean of 4 GPUs", shade: "lowest to highest" }, facts, true, isSmall);
  assert.deepStrictEqual([shaded(false), shaded(true)], ["mean of 4 GPUs, shade: lowest to highest", "mean of 4 GPUs"]);
  assert.deepStrictEqual([bytes(38, true), bytes(43, true), bytes(38, false)], ["of 80.0 GiB · peak 42.0 GiB", "of 80.0 GiB · peak 43.0 GiB", "of 80.0 GiB · peak 38.0 GiB"], "a point may be newer than what was counted");
});

test("a mean over several epochs or phases names none alone", () => {
  const { gpumon } = load();
  const run = { bands: [[0, 10, 11], [10, 20, 12], [20, 30, 13]], phases: [[8, 10, "validate"], [18, 20, "validate"]] };
  const told = (at, cell) => gpumon.epochAt(run, at, cell);
  assert.strictEqual(told(15, null), "epoch 12 · train");
  assert.strictEqual(told(15, [5, 25]), "epochs 11 to 13");
  assert.strictEqual(told(15, [10, 20]), "epoch 12");
  assert.strictEqual(told(15, [11, 17]), "epoch 12 · train");
  assert.strictEqual(told(19, [18, 20]), "epoch 12 · validate");
  assert.strictEqual(told(19, [17, 20]), "epoch 12");
  assert.strictEqual(told(40, [35, 45]), "");
});

test("a band of several epochs names all of them", () => {
  const { gpumon } = load();
  const run = { bands: [[0, 100, 0, "", 9], [100, 200, 10, "warn", 19], [200, 210, 20, "", 20]], phases: [] };
  const told = (at, cell) => gpumon.epochAt(run, at, cell);
  assert.deepStrictEqual([told(50, null), told(150, [90, 160]), told(205, null)], ["epochs 0 to 9", "epochs 0 to 19", "epoch 20 · train"]);
  const drawn = [];
  const pen = { save() {}, restore() {}, beginPath() {}, rect() {}, clip() {}, fillRect() {}, measureText: (text) => ({ width: 6 * text.length }), fillText: (text) => drawn.push(text) };
  const area = { x: (time) => time * 4, from: 0, to: 210, left: 0, right: 840 };
  const isEach = gpumon.drawRibbon(pen, { bands: run.bands.slice(0, 2), phases: [] }, 0, area, () => "#000");
  assert.deepStrictEqual(plain([drawn, isEach]), [["0–9", "10–19"], false], "no line behind the panels claims to be the begin of each epoch");
  drawn.length = 0;
  const many = Array.from({ length: 1000 }, (_, at) => [at, at + 1, 10 * at, "", 10 * at + 9]);
  gpumon.drawRibbon(pen, { bands: many, phases: [] }, 0, { x: (time) => time, from: 0, to: 1000, left: 0, right: 1000 }, () => "#000");
  assert.ok(drawn.length > 1 && drawn.every((text) => /^[\d,]+–[\d,]*[49]9$/.test(text)), drawn.join(" "));
});

test("many events have no lines over the values", () => {
  const { gpumon } = load();
  const area = { from: 0, to: 1000, left: 100, right: 1100, x: (time) => 100 + time };
  const seen = (count) => gpumon.eventsIn(Array.from({ length: count }, (_, at) => ({ time: 15 + at * 18, level: "", text: "x" })), area);
  assert.strictEqual(seen(20).length, 20);
  assert.strictEqual(gpumon.hasTooManyLines(seen(20), area), false);
  assert.strictEqual(gpumon.hasTooManyLines(seen(50), area), true);
  assert.strictEqual(gpumon.hasTooManyLines([], area), false);
});

test("samples longer than cells leave no gap, and a pause does", () => {
  const { gpumon } = load();
  const line = { x: [0.15], mean: [1], low: [1], high: [1], step: 0.3 };
  let before = 0.15;
  for (const time of [0.65, 1.15, 1.65, 4.65]) {
    gpumon.appendPoints([line], [0.5], { time, before, interval: 0.5 });
    before = time;
  }
  const known = line.x.filter((_, at) => line.mean[at] !== null).map((x) => Math.round(x * 100) / 100);
  assert.deepStrictEqual(plain(known), [0.15, 0.45, 0.75, 1.05, 1.35, 1.65, 4.65]);
  assert.strictEqual(line.mean.length, line.x.length);
  assert.strictEqual(line.low.length, line.x.length);
});

test("a file parts no number from its unit", () => {
  const { gpumon: g } = load();
  g.chartFont = () => "";
  const told = [];
  const pen = { measureText: (text) => ({ width: 6 * text.length }), fillText(text) { told.push(text); } };
  const panel = { title: "Device memory", unit: "bytes", top: 80 * 2 ** 30, limits: [], lines: [{ role: "acc" }] };
  const facts = [{ seen: 3, last: 40 * 2 ** 30, high: 68.4 * 2 ** 30 }];
  g.writeGutter(pen, { interval: 1 }, { panel, facts, gone: [], head: 0 }, true);
  assert.deepStrictEqual(told, ["Device memory", "40.0 GiB", "of\u00a080.0\u00a0GiB\u00a0·", "peak\u00a068.4\u00a0GiB"]);
});

test("numbers of a ribbon neither overlap nor are cut", () => {
  for (const [count, first] of [[50, 0], [400, 0], [400, 9000], [5000, 0], [5000, 95000]]) {
    const { gpumon } = load();
    const drawn = [];
    const pen = { save() {}, restore() {}, beginPath() {}, rect() {}, clip() {}, fillRect() {}, measureText: (text) => ({ width: 6 * text.length }), fillText: (text, x) => drawn.push({ text, x }) };
    const bands = Array.from({ length: count }, (_, at) => [at, at + 1, first + at]);
    gpumon.drawRibbon(pen, { bands, phases: [] }, 0, { x: (time) => (time / count) * 1000, from: 0, to: count, left: 0, right: 1000 }, () => "#000");
    assert.ok(drawn.length >= 5, `${count} epochs have ${drawn.length} numbers`);
    drawn.slice(1).forEach(({ text, x }, at) => assert.ok(x - drawn[at].x >= 6 * text.length, text));
    drawn.forEach(({ text, x }) => assert.ok(x - 3 * text.length >= 0 && x + 3 * text.length <= 1000, text));
  }
});

test("an axis of values that differ in their last digit ends", () => {
  const { gpumon } = load();
  for (const low of [1e20, 1e300, Number.MAX_SAFE_INTEGER * 8]) {
    const high = low * (1 + Number.EPSILON);
    assert.ok(gpumon.axisScale.ticks("plain", low, high).length <= 12);
    assert.ok(gpumon.axes.epoch.ticks(low, high, 900).length <= 12);
    assert.ok(gpumon.axes.time.ticks(low, high, 900, 0).length <= 12);
  }
});
