// The fleet: what is free first, then one row a GPU with who is on it, then what is worth a look.
"use strict";
(function (g) {
  const WINDOW = 600;
  const SHOWN = 2; // holders on a row beside the run's
  const STATES = {
    busy: "busy", held: "allocated, idle", idle: "idle", free: "free", unknown: "state unknown", lost: "lost", stale: "stale",
  };
  const t = g.text;
  const page = { title: "Fleet" };
  g.pages = g.pages || {};
  g.pages.fleet = page;
  let heads;
  let table;
  let look;
  let rows = new Map(); // uuid -> the parts of its row that change each second

  page.build = function (section) {
    heads = {
      free: g.headline("Free now", "first"),
      utilization: g.headline("Utilization now"),
      memory: g.headline("Memory in use"),
      power: g.headline("Power"),
      hottest: g.headline("Hottest"),
    };
    heads.chips = g.make("span", { class: "chips" });
    heads.free.value.after(heads.chips);
    heads.free.extra.remove();
    table = g.table("GPUs", columns(), {
      order: "gpu", className: "fleet", empty: "No GPU is known.", each: (row, line) => line.classList.toggle("lost", !row.known),
    });
    look = g.make("ul", { class: "look" });
    section.append(
      g.make("h1", { class: "sr", text: "Fleet" }),
      g.make("div", { class: "headlines" }, ...["free", "utilization", "memory", "power", "hottest"].map((name) => heads[name].node)),
      g.make("section", { class: "card", "aria-label": "GPUs" }, table.node),
      g.card("Worth a look", look));
  };

  function columns() {
    const now = (row, name) => (g.feed.values.get(row.key) || {})[name];
    return [
      { key: "gpu", title: "GPU", head: true, value: (row) => row.gpu.index, sign: (row) => [row.gpu.index, row.gpu.name, row.gpu.state],
        className: "c-gpu", draw: (row) => gpuCell(row.gpu) },
      { key: "spark", title: "Utilization, 10 min", className: "c-spark", sign: () => 0, draw: (row) => {
        const canvas = g.make("canvas", { class: "spark", "aria-hidden": "true" });
        part(row.key).canvas = canvas;
        return [canvas];
      } },
      { key: "now", title: "Now", number: true, className: "c-now", value: (row) => now(row, "gpu.utilization"), sign: () => 0,
        draw: (row) => [part(row.key).now = g.make("span", { class: "big" })] },
      { key: "memory", title: "Memory", className: "c-memory", value: (row) => now(row, "gpu.memory_used"),
        sign: (row) => [row.gpu.memory_total, row.gpu.holders, memoryStep(row)], draw: (row) => memoryCell(row) },
      { key: "power", title: "Power", number: true, className: "c-power", value: (row) => now(row, "gpu.power"), sign: () => 0,
        draw: (row) => [part(row.key).power = g.make("span")] },
      { key: "temperature", title: "Temp", number: true, className: "c-temp", value: (row) => now(row, "gpu.temperature"), sign: () => 0,
        draw: (row) => [part(row.key).temperature = g.make("span")] },
      { key: "who", title: "Who", className: "c-who", value: (row) => (row.gpu.holders[0] || {}).user || (row.run || {}).user || null,
        sign: (row) => [row.gpu.state, row.gpu.reason, row.gpu.holders, row.gpu.since, row.run && { ...row.run, updated: 0 }],
        draw: (row) => whoCell(row) },
    ];
  }

  const part = (uuid) => {
    if (!rows.has(uuid)) { rows.set(uuid, {}); }
    return rows.get(uuid);
  };

  // The bar moves when it would move by a hundredth.
  const memoryStep = (row) => {
    const used = (g.feed.values.get(row.key) || {})["gpu.memory_used"];
    return t.known(used) && row.gpu.memory_total ? Math.round((used / row.gpu.memory_total) * 200) : null;
  };

  function gpuCell(gpu) {
    return [
      g.make("a", { class: "row", href: `#/gpu/${gpu.index}`, title: gpu.name },
        g.make("span", { class: `state ${gpu.state}`, "aria-hidden": "true" }),
        g.make("span", { class: "sr", text: "GPU " }), g.make("b", { text: String(gpu.index) }),
        g.make("span", { class: "sr", text: `, ${gpu.name}, ${STATES[gpu.state] || gpu.state}` })),
    ];
  }

  // The bar by user; what nobody is known to hold is grey.
  function memoryCell(row) {
    const total = row.gpu.memory_total;
    const used = (g.feed.values.get(row.key) || {})["gpu.memory_used"];
    const known = row.gpu.holders.filter((one) => t.known(one.memory));
    const held = known.reduce((sum, one) => sum + one.memory, 0);
    const parts = known.map((one) => ({
      share: one.memory / total, colour: one.user ? g.theme.ofUser(one.user) : "rest", title: `${one.user || one.name}: ${t.bytes(one.memory)}`,
    }));
    if (t.known(used) && used > held) { parts.push({ share: (used - held) / total, colour: "rest", title: "nobody known" }); }
    const text = g.make("span", { class: "used" });
    part(row.key).memory = text;
    return [
      g.make("span", { class: "pair" }, text, g.make("span", { class: "mut", text: t.bytes(total) })),
      g.bar(parts),
    ];
  }

  function whoCell(row) {
    const { gpu, run } = row;
    const lines = [];
    if (!row.known) { return [g.make("span", { class: "tag bad", text: gpu.reason || STATES[gpu.state] || gpu.state })]; }
    if (run) {
      lines.push(g.make("div", { class: "who" }, g.person(run.user),
        g.make("a", { class: "name", href: `#/run/${encodeURIComponent(run.id)}`, text: run.name }),
        run.phase && run.phase !== "train" ? g.make("span", { class: "tag", text: run.phase }) : null));
      if (run.epoch) { lines.push(progress(run)); }
    }
    const others = gpu.holders.filter((one) => !run || one.user !== run.user);
    for (const one of others.slice(0, SHOWN)) {
      lines.push(g.make("div", { class: "who" }, one.user ? g.person(one.user) : null, g.make("span", { class: "name mut", text: one.name })));
    }
    if (others.length > SHOWN) { lines.push(g.make("div", { class: "mut", text: `and ${others.length - SHOWN} more` })); }
    if (gpu.state === "held" || gpu.state === "free") {
      const tag = g.make("span", { class: `tag ${gpu.state === "held" ? "warn" : "ok"}` });
      part(row.key).tag = tag;
      lines.push(g.make("div", {}, tag));
    } else {
      delete part(row.key).tag;
      if (!lines.length) { lines.push(g.make("span", { class: "mut", text: "nobody known" })); }
    }
    return lines;
  }

  function progress(run) {
    const bar = run.progress === null ? null
      : g.bar([{ share: run.progress, colour: g.theme.ofUser(run.user) }], "bar thin");
    return g.make("div", { class: "progress" }, g.make("span", { text: `epoch ${run.epoch}` }), bar,
      run.left === null ? null : g.make("span", { text: `${t.span(run.left)} left` }));
  }

  page.about = function () {
    const about = g.feed.about;
    if (!about) { return; }
    const runs = new Map(about.runs.map((run) => [run.id, run]));
    const uuids = new Set(about.gpus.map((gpu) => gpu.uuid));
    rows = new Map([...rows].filter(([uuid]) => uuids.has(uuid)));
    page.list = about.gpus.map((gpu) => ({
      key: gpu.uuid, gpu, run: runs.get(gpu.run) || null, known: gpu.state in STATES && !["lost"].includes(gpu.state) && !gpu.reason,
    }));
    table.node.classList.toggle("dense", about.gpus.length > 8);
    table.show(page.list);
    const free = about.gpus.filter((gpu) => gpu.state === "free");
    const idle = about.gpus.filter((gpu) => gpu.state === "held");
    heads.free.node.classList.toggle("some", free.length > 0);
    g.putValue(heads.free.value, `${free.length} of ${about.gpus.length}`);
    g.fill(heads.chips, free.map((gpu) => gpu.index), () => free.map((gpu) => (
      g.make("a", { class: "chip", href: `#/gpu/${gpu.index}`, text: `GPU ${gpu.index}` }))));
    const names = idle.map((gpu) => gpu.index).join(", ");
    g.put(heads.free.more, idle.length ? `allocated, idle: GPU ${names}` : free.length ? "none is allocated and idle" : inUse(about.gpus));
    g.fill(look, about.look, () => (about.look.length ? about.look : [{ level: "", about: "", text: "Nothing stands out." }]).map((note) => (
      g.make("li", {}, note.link
        ? g.make("a", { href: note.link }, g.make("span", { class: `tag ${note.level}`, text: note.about }), g.make("span", { text: note.text }))
        : g.make("span", { class: "mut", text: note.text })))));
    page.tick();
  };

  const inUse = (gpus) => (gpus.length && gpus.every((gpu) => gpu.state === "busy") ? "all are in use" : "");

  page.tick = function () {
    if (!page.list) { return; }
    const feed = g.feed;
    for (const row of page.list) {
      const parts = part(row.key);
      const now = feed.values.get(row.key) || {};
      const role = row.gpu.state === "held" ? "warn" : row.gpu.state === "free" ? "mut"
        : g.theme.ofUser((row.run || row.gpu.holders[0] || {}).user);
      if (parts.canvas) { g.spark(parts.canvas, feed.spark.t, feed.spark.gpus.get(row.key) || [], feed.now, WINDOW, role); }
      g.putValue(parts.now, t.percent(now["gpu.utilization"]));
      g.put(parts.memory, t.bytes(now["gpu.memory_used"]));
      const limit = row.gpu.power_limit;
      g.putValue(parts.power, `${t.count(now["gpu.power"])} ${limit ? `/ ${t.watts(limit)}` : "W"}`);
      g.putValue(parts.temperature, t.celsius(now["gpu.temperature"]));
      if (parts.tag) { g.put(parts.tag, tagText(row.gpu, feed.now)); }
    }
    headlines();
  };

  function tagText(gpu, now) {
    const since = t.known(gpu.since) ? `${gpu.at_least ? "at least " : ""}${t.span(now - gpu.since)}` : "";
    if (gpu.state === "held") { return `holds memory, idle ${since}`; }
    return since ? `free for ${since}` : "free";
  }

  const mean = (values) => (values.length ? values.reduce((a, b) => a + b, 0) / values.length : NaN);

  function headlines() {
    const feed = g.feed;
    const all = page.list.map((row) => ({ row, now: feed.values.get(row.key) || {} }));
    const of = (name) => all.map((one) => one.now[name]).filter(t.known);
    const sum = (values) => (values.length ? values.reduce((a, b) => a + b, 0) : NaN);
    g.putValue(heads.utilization.value, t.percent(mean(of("gpu.utilization"))));
    const past = mean([...feed.spark.gpus.values()].map((column) => mean(column.filter(t.known))).filter(t.known));
    g.put(heads.utilization.more, `${t.percent(past)} over ten minutes`);
    const used = sum(of("gpu.memory_used"));
    const total = sum(page.list.map((row) => row.gpu.memory_total).filter(t.known));
    g.putValue(heads.memory.value, `${t.gibibytes(used)} / ${t.gibibytes(total)} GiB`);
    g.put(heads.memory.more, `${t.percent(used / total)} of the server`);
    const power = sum(of("gpu.power"));
    const limit = sum(page.list.map((row) => row.gpu.power_limit).filter(t.known));
    g.putValue(heads.power.value, limit > 1000 ? `${(power / 1000).toFixed(2)} / ${(limit / 1000).toFixed(1)} kW`
      : `${t.count(power)} ${t.known(limit) ? `/ ${t.watts(limit)}` : "W"}`);
    g.put(heads.power.more, t.known(power) ? `${(power * 0.024).toFixed(1)} kWh a day at this rate` : "");
    const hot = all.filter((one) => t.known(one.now["gpu.temperature"]))
      .sort((one, other) => other.now["gpu.temperature"] - one.now["gpu.temperature"])[0];
    g.putValue(heads.hottest.value, t.celsius(hot && hot.now["gpu.temperature"]));
    g.put(heads.hottest.more, hot ? `GPU ${hot.row.gpu.index}` : "");
  }

  g.states = STATES;
})(window.gpumon);
