"use strict";
const assert = require("node:assert");
const test = require("node:test");
const { load } = require("./browser.js");

const HEAD = { boot: "a.0", seq: 1, live: true, state: "live", interval: 1, age: null, ended: false, label: "", problem: "", left_out: "", page: "x", now: 100 };
const delta = (more) => ({ ...HEAD, values: {}, tables: {}, server: {}, series: { t: [], lines: {}, whole: false }, ...more });
const plain = (value) => JSON.parse(JSON.stringify(value)); // of this world's own classes

async function heard(...answers) {
  const world = load([...answers]);
  const news = [];
  world.gpumon.feed.on((one) => news.push(one));
  world.gpumon.feed.open("x", {});
  for (let at = 0; at < answers.length; at += 1) {
    await new Promise((done) => { setImmediate(done); });
    const next = world.later.filter((one) => one.wait === 1000).at(-1);
    if (at + 1 < answers.length) { next.done(); }
  }
  await new Promise((done) => { setImmediate(done); });
  return { feed: world.gpumon.feed, news, world };
}

test("answers are merged, and only changes are news", async () => {
  const first = { order: ["a", "b"], cells: { a: { n: 1, m: [1] }, b: { n: 2, m: [2] } } };
  const second = { cells: { a: { n: 1, m: [1, 1] } } };
  const { feed, news } = await heard(
    delta({ reset: true, values: { v: 1 }, tables: { t: first } }), delta({ seq: 2, values: { v: 1, w: 2 }, tables: { t: second } }));
  assert.deepStrictEqual(plain([...feed.view.values]), [["v", 1], ["w", 2]]);
  assert.deepStrictEqual(plain(feed.view.tables.get("t").rows.get("a")), { n: 1, m: [1, 1] });
  assert.deepStrictEqual(plain(news[1].values), ["w"]);
  assert.deepStrictEqual(plain([...news[1].tables.get("t")]), [["a", ["m"]]]);
});

test("a row that has left the order is removed", async () => {
  const { feed } = await heard(
    delta({ reset: true, tables: { t: { order: ["a", "b"], cells: { a: { n: 1 }, b: { n: 2 } } } } }), delta({ seq: 2, tables: { t: { order: ["b"], cells: {} } } }));
  assert.deepStrictEqual(plain([...feed.view.tables.get("t").rows.keys()]), ["b"]);
});

test("lines keep ten minutes, with gaps where a point lacks them", async () => {
  const { feed } = await heard(
    delta({ reset: true, series: { t: [100, 400, 690], lines: { a: [1, 2, 3] }, whole: true } }),
    delta({ seq: 2, series: { t: [710], lines: { b: [4] }, whole: false } }));
  assert.deepStrictEqual(plain(feed.view.series.t), [400, 690, 710]);
  assert.deepStrictEqual(plain([...feed.view.series.lines]), [["a", [2, 3, null]], ["b", [null, null, 4]]]);
});

test("whole lines replace known ones", async () => {
  const { feed } = await heard(
    delta({ reset: true, series: { t: [100], lines: { a: [1] }, whole: true } }), delta({ seq: 9, series: { t: [300], lines: { a: [3] }, whole: true } }));
  assert.deepStrictEqual(plain(feed.view.series.t), [300]);
});

test("a request names page, arguments and the last frame", async () => {
  const { world } = await heard(delta({ reset: true, seq: 7 }), delta({ seq: 8 }));
  assert.match(world.asked[0], /^api\/delta\?page=x&boot=&since=0/);
  assert.match(world.asked[1], /boot=a\.0&since=7/);
});

test("another page starts without values, and the same one requests nothing", async () => {
  const { feed, world } = await heard(delta({ reset: true, seq: 7, values: { v: 1 } }));
  feed.open("x", {});
  assert.strictEqual(world.asked.length, 1);
  feed.open("x", { id: "1" });
  assert.strictEqual(feed.view.values.size, 0);
  assert.match(world.asked[1], /page=x&boot=a\.0&since=0&id=1/);
});

test("one failed request is reported, and live values stay fresh for a while", async () => {
  const { feed, world, news } = await heard(delta({ reset: true }));
  world.later.filter((one) => one.wait === 1000).at(-1).done();
  await new Promise((done) => { setImmediate(done); });
  await new Promise((done) => { setImmediate(done); });
  assert.strictEqual(feed.state, "reconnecting");
  assert.strictEqual(news.at(-1).delta, null);
  assert.ok(feed.isFresh());
});

test("a late answer makes values stale until it comes", async () => {
  let answer = null;
  const { feed, world, news } = await heard(delta({ reset: true }), new Promise((done) => { answer = done; }));
  assert.strictEqual(feed.state, "live");
  feed.heard -= 6000;
  world.later.filter((one) => one.wait === 5000).at(-1).done();
  assert.strictEqual(feed.state, "reconnecting");
  assert.ok(!feed.isFresh());
  assert.strictEqual(news.at(-1).delta, null);
  answer(delta({ seq: 2 }));
  await new Promise((done) => { setImmediate(done); });
  assert.strictEqual(feed.state, "live");
});

test("a page that is opened again has its last values only while the server is silent", async () => {
  const { feed } = await heard(delta({ reset: true, values: { v: 1 } }));
  feed.open("y", {});
  assert.strictEqual(feed.has("v"), false);
  feed.open("x", {});
  assert.strictEqual(feed.has("v"), false);
  const away = await heard(delta({ reset: true, values: { v: 1 }, live: false, state: "stale", age: 40 }));
  away.feed.open("y", {});
  assert.strictEqual(away.feed.has("v"), false);
  away.feed.now = 500; // of page y, whose values are newer
  away.feed.open("x", {});
  assert.strictEqual(away.feed.value("v"), 1);
  assert.strictEqual(away.feed.now, 100);
  assert.ok(away.feed.silence() >= 40);
  assert.ok(!away.feed.isFresh());
});

test("a request names the position in a recording, and a jump drops all values", async () => {
  const play = { begin: 50, end: 500, speed: 1, problem: "", next: 101, wait: 1 };
  const { feed, world } = await heard(delta({ reset: true, recorded: true, play, values: { v: 1 } }));
  let moved = 0;
  Object.assign(world.gpumon, { setArguments() {}, rangeArguments: () => ({}), redrawPage: () => { moved += 1; } });
  assert.doesNotMatch(world.asked[0], /at=/);
  world.gpumon.position.seek(9999);
  assert.match(world.asked[1], /since=0&at=500$/);
  assert.deepStrictEqual([feed.view.values.size, feed.resets, moved], [0, 1, 1]);
  assert.ok(world.gpumon.position.isOwn);
});

test("a pause stands at the frame that is shown, and playback skips gaps", async () => {
  const play = { begin: 50, end: 5000, speed: 1, problem: "", next: 3600, wait: 1 };
  const { world } = await heard(delta({ reset: true, recorded: true, play }));
  let now = 1000;
  Object.assign(world.gpumon, { setArguments() {}, rangeArguments: () => ({}), redrawPage() {} });
  world.performance = { now: () => now };
  const { position } = world.gpumon;
  position.pause();
  now += 60000;
  assert.strictEqual(position.here(), 100.001);
  assert.strictEqual(position.wait(), 10);
  position.resume();
  now += 500;
  assert.strictEqual(Math.round(position.here() * 1000), 100501);
  now += 2000;
  assert.strictEqual(Math.round(position.here()), 3602);
});

test("an impossible position of a link is ignored", async () => {
  const { world } = await heard(delta({ reset: true }));
  for (const at of ["1e300", "-1e300", "NaN", "", " ", "now"]) {
    world.gpumon.position.open(new URLSearchParams({ at }));
    assert.ok(!world.gpumon.position.isOwn, at);
  }
  world.gpumon.position.open(new URLSearchParams({ at: "70" }));
  assert.ok(world.gpumon.position.isOwn);
});
