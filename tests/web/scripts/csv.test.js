"use strict";
const assert = require("node:assert");
const test = require("node:test");
const { load } = require("./browser.js");

function world() {
  const { gpumon } = load();
  gpumon.feed.state = "live";
  gpumon.feed.now = 1000;
  return gpumon;
}

test("cells are quoted as RFC 4180 says", () => {
  const { csvCell } = world();
  assert.strictEqual(csvCell("a,b"), '"a,b"');
  assert.strictEqual(csvCell('say "hi"'), '"say ""hi"""');
  assert.strictEqual(csvCell("one\ntwo"), '"one\ntwo"');
  assert.strictEqual(csvCell("plain text"), "plain text");
});

test("no cell is a formula, and numbers keep their sign", () => {
  const { csvCell } = world();
  for (const text of ["=1+1", "+cmd", "-cmd", "@sum", "\tx", "\rx", "-", "\t"]) {
    assert.ok(csvCell(text).replace(/^"/, "").startsWith("'"), JSON.stringify(text));
  }
  assert.strictEqual(csvCell(-1.5), "-1.5");
  assert.strictEqual(csvCell("-1.5e-3"), "-1.5e-3");
  assert.strictEqual(csvCell('=HYPERLINK("http://x","y")'), '"\'=HYPERLINK(""http://x"",""y"")"');
});

test("a file begins with a byte order mark, and lines end with CRLF", () => {
  assert.strictEqual(world().csv([["a", "b"], [1, null]]), "\ufeffa,b\r\n1,\r\n");
});

test("listed names are a column of their own", () => {
  const gpumon = world();
  const heads = [{ col: "who", by: "user", kind: "rich", listed: "users" }];
  const who = [{ line: [{ person: "ada" }, { text: "net" }] }, { line: [{ person: "bob" }, { text: "; x" }] }];
  const rows = [{ key: "k", user: "ada", users: ["ada", "bob"], who }, { key: "l", users: ["a;b"], who: [] }, { key: "m", who: [] }];
  const lines = gpumon.tableCsv({ heads, rows }, "uuid").slice(1).trimEnd().split("\r\n");
  assert.deepStrictEqual(lines, ["uuid,users,who", "k,ada;bob,ada net; bob ; x", 'l,"a,b",', "m,,"]);
});

test("a table has base units, UTC, no pictures, and empty cells for missing values", () => {
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

test("an old row has no labels that hold only now", () => {
  const gpumon = world();
  gpumon.feed.state = "stale";
  const heads = [{ col: "gpu", by: "index", kind: "state" }, { col: "who", by: "user", kind: "rich" }];
  const rows = [{ key: "k", gpu: { state: "free", title: "free", text: "0" }, who: [{ line: [{ tag: "free", now: true }] }] }];
  assert.match(gpumon.tableCsv({ heads, rows }), /0,stale,\r\n$/);
});

test("a chart is a row for each point, and a logged value is in the nearest", () => {
  const { gpumon } = load();
  const sampled = { x: [10, 12, 14], mean: [0.5, null, 0.7], low: [0.4, null, 0.6], high: [0.6, null, 0.8], step: 2 };
  const logged = { x: [10.4, 12.9, 13.2, 13.4, 40], mean: [3, 2, 1.5, 1, 0.5], joined: true };
  const panels = [{ key: "gpu.utilization", unit: "ratio", lines: [sampled] }, { key: "logged.loss", unit: "plain", lines: [{ ...logged, label: "A net,1" }] }];
  const lines = gpumon.chartCsv({ axis: "time", panels }, [10, 20]).slice(1).trimEnd().split("\r\n");
  assert.deepStrictEqual(lines, [
    "time_utc,unix_seconds,gpu.utilization_ratio,gpu.utilization_ratio_lowest,gpu.utilization_ratio_highest,logged.loss_a_net_1",
    "1970-01-01 00:00:10,10,0.5,0.4,0.6,3",
    "1970-01-01 00:00:12,12,,,,2",
    "1970-01-01 00:00:13,13.4,,,,1",
    "1970-01-01 00:00:14,14,0.7,0.6,0.8,1.5",
  ]);
});

test("means have six digits at most, whole numbers all of theirs", () => {
  const { gpumon } = load();
  const line = (mean) => ({ x: [10.5000002, 11.5], mean, step: 1 });
  const panels = [{ key: "gpu.temperature", unit: "celsius", lines: [line([190 / 3, 63])] }, { key: "gpu.memory_used", unit: "bytes", lines: [line([62277025792, 1e11 / 3])] }];
  const [, ...rows] = gpumon.chartCsv({ axis: "time", panels }, [10, 20]).trimEnd().split("\r\n");
  assert.deepStrictEqual(rows.map((row) => row.split(",").slice(1).join()), ["10.5,63.3333,62277025792", "11.5,63,33333300000"]);
});

test("a counted energy is not summed again for the whole", () => {
  const { gpumon } = load();
  const facts = { seen: 2, mean: 300, area: 7200 };
  assert.strictEqual(gpumon.panelContext({ unit: "watts", counted: true }, facts, true), "mean 300 W");
  for (const [panel, isWhole] of [[{ unit: "watts", counted: true }, false], [{ unit: "watts" }, true]]) {
    assert.strictEqual(gpumon.panelContext(panel, facts, isWhole), "mean 300 W · 2.0 Wh");
  }
});

test("a file is named by its table and its period or time", () => {
  const gpumon = world();
  const { Element } = require("./browser.js");
  const names = [];
  gpumon.saveFile = (name) => { names.push(name); };
  gpumon.feed.value = (name) => (name === "window_title" ? "23–29 Nov 2026" : null);
  for (const data of [{ "data-period": "window_title" }, { "data-period": "unknown" }, {}]) {
    const table = { name: "users", whole: (then) => then({ heads: [], rows: [] }) };
    gpumon.csvButton(new Element("div", {}, new Element("span", data)).children[0], table);
    table.button.click();
  }
  assert.strictEqual(names[0], "users-23-29-Nov-2026.csv");
  for (const name of names.slice(1)) { assert.match(name, /^users-1970-01-01-\d\d-16-40\.csv$/); }
});

test("a replaced heading is in the file too", () => {
  const gpumon = world();
  const file = () => gpumon.tableCsv({ heads: [{ col: "user", kind: "rich", titled: "user_title" }], rows: [{ key: "k", user: [{ text: "x" }] }] });
  assert.strictEqual(file(), "\ufeffuser\r\nx\r\n");
  gpumon.feed.view.values.set("user_title", "GPU");
  assert.strictEqual(file(), "\ufeffgpu\r\nx\r\n");
});
