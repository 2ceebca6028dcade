"use strict";
const assert = require("node:assert");
const test = require("node:test");
const { load } = require("./browser.js");

function world() {
  const { gpumon } = load(["00", "10", "12", "20", "25", "36"]);
  gpumon.feed.state = "live";
  gpumon.feed.now = 1000;
  return gpumon;
}

test("a cell with a comma, a quote or a line break stands in quotes, and a quote is doubled", () => {
  const { csvCell } = world();
  assert.strictEqual(csvCell("a,b"), '"a,b"');
  assert.strictEqual(csvCell('say "hi"'), '"say ""hi"""');
  assert.strictEqual(csvCell("one\ntwo"), '"one\ntwo"');
  assert.strictEqual(csvCell("plain text"), "plain text");
});

test("what a spreadsheet would take as a formula is none, and numbers keep their sign", () => {
  const { csvCell } = world();
  for (const text of ["=1+1", "+cmd", "-cmd", "@sum", "\tx", "\rx", "-", "\t"]) {
    assert.ok(csvCell(text).replace(/^"/, "").startsWith("'"), JSON.stringify(text));
  }
  assert.strictEqual(csvCell(-1.5), "-1.5");
  assert.strictEqual(csvCell("-1.5e-3"), "-1.5e-3");
  assert.strictEqual(csvCell('=HYPERLINK("http://x","y")'), '"\'=HYPERLINK(""http://x"",""y"")"');
});

test("lines end as RFC 4180 says, behind the mark that spreadsheets need", () => {
  assert.strictEqual(world().csv([["a", "b"], [1, null]]), "\ufeffa,b\r\n1,\r\n");
});

test("columns have names with units, cells base units, times UTC; pictures are left out and missing is empty", () => {
  const gpumon = world();
  const heads = [
    { col: "gpu", by: "index", kind: "state" }, { col: "spark", by: "spark", kind: "spark" },
    { col: "used", by: "used", kind: "bytes" }, { col: "power", by: "watts", kind: "text", saved: "power_watts" },
    { col: "seconds", by: "seconds", kind: "lasting" }, { col: "started", by: "started", kind: "age" },
    { col: "video", by: "video", kind: "percent", part: "Encoder" }, { col: "who", by: "user", kind: "rich" },
  ];
  const rows = [
    { key: "k", gpu: { state: "busy", title: "busy", text: "0" }, used: 2048, power: "3 W", watts: 3.25, seconds: { since: 900 }, started: 0, video: { Encoder: 0.5 },
      who: [{ line: [{ person: "ada" }, { link: true, text: "net", href: "#/" }] }, { line: [{ bar: [] }, { text: "epoch 3" }] }] },
    { key: "l", gpu: { state: "lost", title: "lost", text: "1", lasts: true }, used: null, power: "–", watts: null, seconds: null, started: null, video: {}, who: [] },
  ];
  const lines = gpumon.tableCsv({ heads, rows }, "uuid").slice(1).trimEnd().split("\r\n");
  assert.strictEqual(lines[0], "uuid,gpu,state,used_bytes,power_watts,seconds,started_utc,encoder_ratio,who");
  assert.strictEqual(lines[1], "k,0,busy,2048,3.25,100,1970-01-01 00:00:00,0.5,ada net; epoch 3");
  assert.strictEqual(lines[2], "l,1,lost,,,,,,");
});

test("of what is old, nothing is said that is so only now", () => {
  const gpumon = world();
  gpumon.feed.state = "stale";
  const heads = [{ col: "gpu", by: "index", kind: "state" }, { col: "who", by: "user", kind: "rich" }];
  const rows = [{ key: "k", gpu: { state: "free", title: "free", text: "0" }, who: [{ line: [{ tag: "free", now: true }] }] }];
  assert.match(gpumon.tableCsv({ heads, rows }), /0,stale,\r\n$/);
});
