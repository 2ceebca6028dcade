"use strict";
const assert = require("node:assert");
const test = require("node:test");
const { Element, load } = require("./browser.js");

function shown(kind, value, state = "live", data = {}, places = {}) {
  const { gpumon } = load();
  gpumon.feed.state = state;
  gpumon.feed.now = 1000;
  gpumon.theme.setPlaces(places);
  const node = new Element("td");
  Object.assign(node.dataset, data);
  gpumon.showValue(node, kind, value);
  return node;
}

const STATE = { state: "busy", title: "busy", text: "3", before: "GPU ", name: "H100", link: "#/gpu/3", lasts: false };

test("numbers have their unit, and a missing one is a dash", () => {
  const cases = [["percent", 0.97, "97 %"], ["percent", null, "–"], ["celsius", 66, "66 °C"], ["count", 3, "3"], ["text", null, ""], ["joules", 5000, "1.4 Wh"], ["joules", { least: 5000 }, "≥ 1.4 Wh"], ["joules", null, "–"],
    ["mono", "", "–"], ["lasting", { since: 940 }, "1:00"], ["lasting", 8, "8.0 s"], ["lasting", 0.05, "50 ms"], ["duration", 0.4, "400 ms"], ["lasting", null, "–"], ["age", 700, "5 min ago"]];
  for (const [kind, value, wanted] of cases) { assert.strictEqual(shown(kind, value).textContent, wanted, kind); }
});

test("a small unit has an element of its own", () => {
  assert.strictEqual(shown("percent", 0.97, "live", { unit: "unit" }).find("small")[0].textContent, " %");
});

test("a link leads to a page of this view only", () => {
  for (const [link, wanted] of [["#/gpu/1", "#/gpu/1"], ["https://evil.example", "#/"], ["javascript:alert(1)", "#/"]]) {
    assert.strictEqual(shown("link", { link, text: "x" }).find("a")[0].attributes.href, wanted);
    assert.strictEqual(shown("rich", [{ line: [{ link, text: "x" }] }]).find("a")[0].attributes.href, wanted);
    assert.strictEqual(shown("notes", [{ link, text: "x", about: "y", level: "bad" }]).find("a")[0].attributes.href, wanted);
  }
});

test("a finding has its remedy, and more findings open", () => {
  const notes = [{ text: "hot", action: "Clean it.", about: "GPU 1", level: "bad", link: "#/gpu/1" }, { text: "and 1 more", opened: "show fewer", opens: "look" },
    { text: "slow", about: "GPU 2", level: "warn", link: "" }];
  const node = shown("notes", notes);
  const [first, hidden, opener] = node.find("li");
  assert.strictEqual(first.textContent, "GPU 1hot Clean it.");
  assert.strictEqual(hidden.className, "rest");
  const [button] = opener.find("button");
  assert.deepStrictEqual([button.textContent, button.getAttribute("aria-expanded")], ["and 1 more", "false"]);
  button.click();
  assert.deepStrictEqual([hidden.className, button.textContent, button.getAttribute("aria-expanded")], ["", "show fewer", "true"]);
  button.click();
  assert.strictEqual(hidden.className, "rest");
});

test("names are text", () => {
  const name = "<img src=x onerror=alert(1)>";
  for (const node of [shown("person", name), shown("rich", [{ line: [{ person: name }, { text: name }, { tag: name, level: "" }] }])]) {
    assert.ok(node.textContent.includes(name));
    assert.strictEqual(node.find("img").length, 0);
  }
});

test("words are text or an object", () => {
  assert.strictEqual(shown("text", "as it is").textContent, "as it is");
  assert.strictEqual(shown("text", { text: "as it is" }).textContent, "as it is");
});

test("users who share a color have different marks", () => {
  const people = Array.from({ length: 20 }, (_, at) => ({ person: `person ${at}` }));
  const places = Object.fromEntries(people.map((one, at) => [one.person, at]));
  const marks = shown("rich", [{ line: people }], "live", {}, places).find("span").map((one) => one.className).filter((one) => one.startsWith("person"));
  assert.strictEqual(marks.filter((one) => one === "person").length, 8);
  assert.strictEqual(marks.filter((one) => one === "person second").length, 8);
  assert.strictEqual(marks.filter((one) => one === "person third").length, 4);
});

test("an old state is stale unless it lasts", () => {
  assert.match(shown("state", STATE).textContent, /H100, busy$/);
  assert.match(shown("state", STATE, "stale").textContent, /H100, stale$/);
  assert.match(shown("state", STATE, "ended").textContent, /H100, ended$/);
  assert.match(shown("state", { ...STATE, title: "lost", lasts: true }, "stale").textContent, /H100, lost$/);
});

test("no old check is well", () => {
  const checks = [{ title: "XID", text: "none", more: "", level: "ok" }, { title: "ECC", text: "2 uncorrected", more: "", level: "bad" }];
  assert.strictEqual(shown("checks", checks).textContent, "XIDnone, wellECC2 uncorrected, needs attention");
  assert.strictEqual(shown("checks", checks, "stale").textContent, "XIDnot known now, unknownECC2 uncorrected when last seen, needs attention");
});

test("old free memory and process times say when they were seen", () => {
  const free = [{ title: "free", old: "free when last seen", size: "8.0 GiB", share: 0.1, color: "u0", opacity: "1", user: "" }];
  for (const [state, wanted] of [["live", "free8.0 GiB"], ["stale", "free when last seen8.0 GiB"], ["ended", "free8.0 GiB"]]) {
    assert.strictEqual(shown("parts", free, state).textContent, wanted);
  }
  assert.strictEqual(shown("elapsed", 760).textContent, "4 min");
  assert.match(shown("elapsed", 760, "stale").textContent, /^since .*\d\d:\d\d/);
  assert.strictEqual(shown("elapsed", 760, "ended").textContent, "4 min");
});

test("old values leave out what holds only now", () => {
  const free = [{ line: [{ tag: "free for 3 min", level: "ok", now: true }] }];
  assert.strictEqual(shown("rich", free).textContent, "free for 3 min");
  assert.strictEqual(shown("rich", free, "stale").textContent, "");
  assert.strictEqual(shown("text", "1 of 8", "stale", { old: "–" }).textContent, "–");
  assert.strictEqual(shown("notes", [], "stale", { old: "The current state is unknown." }).textContent, "The current state is unknown.");
});

test("a step of a second with jitter is 1 s", () => {
  const { gpumon } = load();
  assert.deepStrictEqual([1.0004, 1, 1.5, 0.1, 0.25, 300].map(gpumon.text.short), ["1 s", "1 s", "1.5 s", "100 ms", "250 ms", "5 min"]);
});

test("memory without a total has no bar", () => {
  const node = (parts) => shown("memory", { used: "20.0 GiB", total: "–", parts });
  assert.strictEqual(node(null).children.length, 1);
  assert.ok(node(null).children[0].children[1].classList.contains("none"), "a phone has no room for its dash");
  assert.strictEqual(node([{ share: 0.5, user: "alice", color: "", title: "" }]).children.length, 2);
});

test("an old state of a run says when it was seen", () => {
  const tag = { tag: "running", level: "ok", now: false, old: "last seen running", ended: "running at the end" };
  for (const [state, wanted] of [["live", "running"], ["stale", "last seen running"], ["ended", "running at the end"]]) {
    assert.strictEqual(shown("tag", tag, state).textContent, wanted);
  }
  assert.strictEqual(shown("tag", { tag: "finished", level: "", now: false }, "stale").textContent, "finished");
});

test("an old open event says when it was last seen", () => {
  const { gpumon } = load();
  const took = { text: "ongoing since", time: 900, old: { text: "12 min, last seen", time: 940 } };
  const moments = { live: 900, stale: 940 };
  for (const [state, wanted] of [["live", "ongoing since"], ["stale", "12 min, last seen"]]) {
    const node = new Element("td");
    gpumon.feed.state = state;
    gpumon.showValue(node, "text", took);
    assert.ok(node.textContent.startsWith(`${wanted} `));
    assert.strictEqual(node.attributes.title, gpumon.text.moment(moments[state]));
  }
});

test("a row does not run in an epoch that the headline has left", () => {
  const { gpumon } = load();
  Object.assign(gpumon.feed, { state: "live", now: 1000 });
  const tag = { tag: "running", level: "ok", now: false, old: "last seen running", ended: "running at the end", while: "415/500" };
  const node = new Element("td");
  const said = () => ["tag", "lasting"].map((kind) => { gpumon.showValue(node, kind, { ...tag, since: 940 }); return node.textContent; });
  assert.deepStrictEqual(said(), ["running", "1:00"], "the ring has told nothing yet");
  for (const [epoch, wanted] of [["415/500", ["running", "1:00"]], ["416/500", ["", "–"]], [null, ["", "–"]]]) {
    gpumon.feed.view.values.set("epoch", epoch);
    assert.deepStrictEqual(said(), wanted);
  }
  assert.ok(gpumon.movesByItself("tag", tag), "it is drawn again though no value of its row came");
  assert.ok(!gpumon.movesByItself("tag", { tag: "finished" }));
});

test("an unknown number is a dash, and unknown elements are removed", () => {
  const { gpumon } = load();
  gpumon.feed.state = "live";
  for (const [kind, wanted] of [["percent", "–"], ["mine", ""], ["tag", ""]]) {
    const node = new Element("span", {}, "before");
    Object.assign(node.dataset, { kind, unit: "unit" });
    gpumon.showUnknown(node);
    assert.strictEqual(node.textContent, wanted, kind);
  }
});

test("a cleared map is drawn again", () => {
  const { gpumon } = load();
  gpumon.feed.state = "live";
  const row = { gpu: { ...STATE, link: "#/gpu/3" }, now: 0.5, users: ["ada"] };
  gpumon.feed.view.tables.set("gpus", { order: ["3"], rows: new Map([["3", row]]) });
  const node = new Element("div");
  for (const name of ["gpus", null, "gpus"]) {
    gpumon.showValue(node, "tiles", name);
    assert.strictEqual(node.children.length, name ? 1 : 0);
  }
});

test("viewers may choose any user of whom the page has heard", () => {
  const { gpumon } = load();
  gpumon.theme.addUsers(["carol", "ada"]);
  const node = new Element("div");
  gpumon.showValue(node, "mine", { users: {}, own: "#/users?user=" });
  assert.deepStrictEqual(node.find("option").map((one) => one.attributes.value), ["", "ada", "carol"]);
});

test("old estimates are not shown", () => {
  const rich = [{ line: [{ text: "epoch 7" }, { text: "2 min left", now: true }] }];
  const rate = { text: "14 kWh per day at this rate", old: "" };
  assert.match(shown("rich", rich).textContent, /2 min left/);
  assert.strictEqual(shown("span", 120).textContent, "2 min");
  assert.strictEqual(shown("text", rate).textContent, rate.text);
  for (const state of ["stale", "ended"]) {
    assert.strictEqual(shown("rich", rich, state).textContent, "epoch 7");
    assert.strictEqual(shown("span", 120, state).textContent, "–");
    assert.strictEqual(shown("span", { took: 90 }, state).textContent, "1:30");
    assert.strictEqual(shown("text", rate, state).textContent, "");
  }
});

test("no number is parted from its unit", () => {
  const { gpumon } = load();
  const said = (text) => gpumon.text.unbroken(text).replaceAll("\u00a0", "_");
  assert.strictEqual(said("idle for at least 2 h 15 min, 41.3 GiB held by dave"), "idle for at least 2_h 15_min, 41.3_GiB held by dave");
  assert.strictEqual(said("waits for data 49 % of its training"), "waits for data 49_% of its training");
  assert.strictEqual(said("8 of 16 lanes, 4 GPUs, epoch 3 was slow, 12 MiB/s"), "8 of 16 lanes, 4 GPUs, epoch 3 was slow, 12_MiB/s");
  const node = shown("notes", [{ text: "it is 95 °C", action: "Wait 5 min.", level: "warn", about: "GPU 3", link: "" }]);
  assert.match(node.textContent, /it is 95\u00a0°C Wait 5\u00a0min\./);
});

test("a sign before a number is not part of its unit", () => {
  for (const [kind, value, wanted, unit] of [["text", "≥ 72 %", "≥ 72", " %"], ["text", "≈ 72 %", "≈ 72", " %"], ["joules", { least: 5000 }, "≥ 1.4", " Wh"], ["text", "<0.01 Wh", "<0.01", " Wh"]]) {
    const node = shown(kind, value, "live", { unit: "big" });
    assert.strictEqual(node.textContent, wanted + unit);
    assert.deepStrictEqual(node.find("small").map((one) => one.textContent), [unit]);
  }
});
