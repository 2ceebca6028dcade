// Where a strip draws what was held and what was not seen: beside each other, never on each other.
"use strict";
const assert = require("node:assert");
const test = require("node:test");
const { load } = require("./browser.js");

const HOUR = 60; // px, so that a px is a minute
const TALL = 20;

// What a strip of so many hours draws: blocks and hatches as [left, right] in minutes, blocks with the share of the height.
async function drawn(one) {
  const world = load();
  const canvas = world.gpumon.holderStrip({ shift: 0, is_bars: false, until: 1, label: "", ...one });
  const blocks = [];
  const hatches = [];
  const [tops, highs] = [[], []];
  const labels = [];
  const pen = new Proxy({}, {
    get: (own, name) => own[name] || ((...given) => {
      if (name === "measureText") { return { width: one.letter ? one.letter * given[0].length : 1000 }; }
      if (name === "roundRect") { labels.push([given[0], given[0] + given[2]]); }
      const [left, top, wide, tall] = given;
      if (name === "fillRect" && tall > 2 && own.fillStyle.startsWith("rgba(") && wide > 1) { blocks.push([left, left + wide, tall / TALL]); tops.push(top / TALL); }
      if (name === "rect") { hatches.push([left, left + wide]); highs.push(tall / TALL); }
      return undefined;
    }),
  });
  Object.assign(canvas, { clientWidth: one.slots * HOUR, clientHeight: TALL, getContext: () => pen });
  world.document.body = {};
  await new Promise((done) => { setImmediate(done); });
  const near = (all) => all.map((part) => part.map((each, at) => (at < 2 ? Math.round(each) : Math.round(each * 100) / 100)));
  const now = one.until === undefined ? Infinity : one.until * one.slots * HOUR;
  return { blocks: near(blocks.filter(([left]) => left < now)), hatches: near(hatches), labels: near(labels), tops, highs };
}

// The first daemon of a machine began at 19:44:30; it is 19:53, and somebody held the GPU ever since.
const FIRST = { slots: 24, until: (19 * 60 + 53) / (24 * 60), parts: [[19, "ann", 14, 14]], unseen: [...Array.from({ length: 19 }, (_, at) => [at, 100]), [19, 74]] };

test("what was held since the first daemon lies behind its hatch", async () => {
  const { blocks, hatches } = await drawn(FIRST);
  const [, end] = hatches[hatches.length - 1];
  assert.ok(Math.abs(end - (19 * 60 + 44)) <= 1);
  assert.deepStrictEqual(blocks, [[end, 19 * 60 + 53, blocks[0][2]]]);
  assert.ok(blocks[0][2] > 0.9, "all that was watched");
});

test("so does the mean of several GPUs", async () => {
  const { blocks, hatches } = await drawn({ ...FIRST, is_mean: true });
  const [, end] = hatches[hatches.length - 1];
  assert.deepStrictEqual(blocks.map(([left, right]) => [left, right]), [[end, 19 * 60 + 53]]);
  assert.ok(blocks[0][2] > 0.9);
});

test("a part of an hour is beside an outage only if it was held before it", async () => {
  const unseen = [[1, 50], [2, 40]];
  const through = await drawn({ slots: 5, parts: [[0, "ann", 100, 0], [1, "ann", 50, 0], [2, "ann", 30, 0]], unseen });
  assert.deepStrictEqual(through.hatches, [[90, 120], [120, 144]]);
  assert.deepStrictEqual(through.blocks, [[0, 60, 1], [60, 90, 1], [144, 162, 1]]);
  const later = await drawn({ slots: 5, parts: [[2, "ann", 30, 0]], unseen });
  assert.deepStrictEqual(later.blocks, [[144, 180, 0.5]], "nobody knows when of the watched time");
});

test("what was held before an outage ends at its hatch", async () => {
  const { blocks, hatches } = await drawn({ slots: 3, parts: [[0, "ann", 100, 0], [1, "ann", 25, 0]], unseen: [[1, 75], [2, 100]] });
  assert.deepStrictEqual(hatches, [[75, 120], [120, 180]]);
  assert.deepStrictEqual(blocks, [[0, 60, 1], [60, 75, 1]]);
});

test("what was held after an outage begins at the end of its hatch, or later if it goes on", async () => {
  const unseen = [[0, 100], [1, 50]];
  const whole = await drawn({ slots: 3, parts: [[1, "ann", 50, 0], [2, "ann", 100, 0]], unseen });
  assert.deepStrictEqual(whole.blocks, [[90, 120, 1], [120, 180, 1]]);
  const part = await drawn({ slots: 3, parts: [[1, "ann", 25, 0], [2, "ann", 100, 0]], unseen });
  assert.deepStrictEqual(part.blocks, [[105, 120, 1], [120, 180, 1]]);
});

test("blocks and hatches never lie on each other", async () => {
  for (let seed = 1; seed < 200; seed += 1) {
    let state = seed;
    const chance = (most) => { state = (state * 48271) % 2147483647; return state % most; };
    const unseen = [];
    const parts = [];
    for (let slot = 0; slot < 6; slot += 1) {
      const away = [0, 0, 100, chance(100)][chance(4)];
      if (away) { unseen.push([slot, away]); }
      const held = chance(101 - away);
      if (held) { parts.push([slot, ["ann", "bob"][chance(2)], held, 0]); }
    }
    const { blocks, hatches, tops, highs } = await drawn({ slots: 6, parts, unseen, is_mean: seed % 2 === 0 });
    for (const [block, [left, right]] of blocks.entries()) {
      for (const [hatch, [from, to]] of hatches.entries()) { assert.ok(right <= from + 2 || left >= to - 2 || tops[block] >= highs[hatch] - 0.13, `${JSON.stringify({ seed, parts, unseen, blocks, hatches })}`); }
    }
  }
});

test("a timed outage is hatched where it was, between what was held", async () => {
  const parts = [[0, "ann", 100, 0], [1, "ann", 67, 0], [2, "ann", 100, 0]];
  const { blocks, hatches } = await drawn({ slots: 3, parts, unseen: [[1, 33.3, 25]] });
  assert.deepStrictEqual(hatches, [[75, 95]]);
  assert.deepStrictEqual(blocks.map(([left, right]) => [left, right]), [[0, 60], [60, 75], [95, 120], [120, 180]]);
  assert.ok(blocks.every(([, , tall]) => tall > 0.95));
});

test("an outage without a time has a height, and no place in its hour", async () => {
  for (const unseen of [[[1, 25]], [[0, 100], [1, 25], [2, 100]]]) {
    const { blocks, hatches, tops, highs } = await drawn({ slots: 3, parts: [[1, "ann", 50, 0], ...(unseen.length > 1 ? [] : [[2, "ann", 100, 0]])], unseen });
    const at = hatches.findIndex(([left]) => left === 60);
    assert.deepStrictEqual([hatches[at], highs[at]], [[60, 120], 0.25], "as wide as the hour, and as high as it was long");
    assert.deepStrictEqual([blocks[0], tops[0]], [[60, 120, 0.5], 0.5]);
  }
  const mean = await drawn({ slots: 3, parts: [[1, "ann", 50, 0], [2, "ann", 100, 0]], unseen: [[1, 25]], is_mean: true });
  assert.deepStrictEqual(mean.blocks[0], [60, 120, 0.5]);
});

test("two outages of one hour are two hatches", async () => {
  const { blocks, hatches } = await drawn({ slots: 1, parts: [[0, "ann", 80, 0]], unseen: [[0, 10, 20], [0, 10, 60]] });
  assert.deepStrictEqual(hatches, [[12, 18], [36, 42]]);
  assert.deepStrictEqual(blocks.map(([left, right]) => [left, right]), [[0, 12], [18, 36], [42, 60]]);
});

test("a name lies within what was held", async () => {
  const until = (19 * 60 + 5) / (24 * 60);
  for (const parts of [
    [[19, "i", 8, 8]],
    [[18, "i", 10, 0], [19, "i", 8, 0]],
    [[3, "i", 100, 0], [4, "i", 10, 0]],
    [[3, "ann", 100, 0], [4, "ann", 100, 0], [5, "ann", 5, 0]],
  ]) {
    for (const letter of [6, 12, 17, 20, 40, 46, 50]) {
      const { blocks, labels } = await drawn({ slots: 24, until, parts, unseen: [], letter });
      const [left, right] = [Math.min(...blocks.map(([from]) => from)), Math.max(...blocks.map(([, to]) => to))];
      for (const [from, to] of labels) { assert.ok(left <= from && to <= right, `${from} to ${to} within ${left} to ${right}`); }
    }
  }
  const { labels } = await drawn({ slots: 24, until, parts: [[3, "ann", 100, 0], [4, "ann", 100, 0]], unseen: [], letter: 6 });
  assert.strictEqual(labels.length, 1);
});
