// The fleet: what is free first, then one row a GPU with who is on it, then what is worth a look.
"use strict";
(function (g) {
  const WINDOW = 600;
  const RUNS = 4; // runs on a row; the page of the GPU has all
  const SHOWN = 2; // holders on a row beside those of runs
  const CHIPS = 12;
  const STATES = {
    busy: "busy", held: "allocated, idle", idle: "idle", free: "free", unknown: "state unknown", lost: "lost", stale: "stale",
    unreadable: "unreadable",
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
      order: "gpu", className: "fleet", empty: "No GPU is known.", each: (row, line) => line.classList.toggle("old", row.state === "stale"),
    });
    look = g.make("ul", { class: "look" });
    section.append(
      g.make("h1", { class: "sr", text: "Fleet" }),
      g.make("div", { class: "headlines" }, ...["free", "utilization", "memory", "power", "hottest"].map((name) => heads[name].node)),
      g.make("section", { class: "card", "aria-label": "GPUs" }, table.node),
      g.card("Worth a look", look));
  };

  function columns() {
    const now = (row, name) => g.feed.current(row.gpu)[name];
    return [
      { key: "gpu", title: "GPU", head: true, value: (row) => row.gpu.index, sign: (row) => [row.gpu.index, row.gpu.name, row.state],
        className: "c-gpu", draw: (row) => gpuCell(row) },
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
      { key: "who", title: "Who", className: "c-who", value: (row) => (row.runs[0] || row.gpu.holders[0] || {}).user || null,
        sign: (row) => [row.state, row.gpu.reason, row.gpu.holders, row.gpu.since, row.gpu.unlisted, row.gpu.processes_unknown,
          row.runs.map((run) => ({ ...run, updated: 0 }))],
        draw: (row) => whoCell(row) },
    ];
  }

  const part = (uuid) => {
    if (!rows.has(uuid)) { rows.set(uuid, {}); }
    return rows.get(uuid);
  };

  // The bar moves when it would move by a hundredth.
  const memoryStep = (row) => {
    const used = g.feed.current(row.gpu)["gpu.memory_used"];
    return t.known(used) && row.gpu.memory_total ? Math.round((used / row.gpu.memory_total) * 200) : null;
  };

  function gpuCell({ gpu, state }) {
    return [
      g.make("a", { class: "row", href: `#/gpu/${gpu.index}`, title: gpu.name },
        g.make("span", { class: `state ${state}`, "aria-hidden": "true" }),
        g.make("span", { class: "sr", text: "GPU " }), g.make("b", { text: String(gpu.index) }),
        g.make("span", { class: "sr", text: `, ${gpu.name}, ${g.stateText(gpu)}` })),
    ];
  }

  // The bar by user; what an unknown process holds is grey. Without a total there is no share, and no bar.
  function memoryCell(row) {
    const total = row.gpu.memory_total;
    const used = g.feed.current(row.gpu)["gpu.memory_used"];
    const text = g.make("span", { class: "used" });
    part(row.key).memory = text;
    const pair = g.make("span", { class: "pair" }, text, g.make("span", { class: "mut", text: t.bytes(total) }));
    if (!t.known(total) || !(total > 0)) { return [pair]; }
    return [pair, g.bar(g.memoryParts(row.gpu, used))];
  }

  // Shares of the memory of a GPU by user, and grey what an unknown process holds.
  g.memoryParts = function (gpu, used) {
    const total = gpu.memory_total;
    const users = g.byUser(gpu.holders);
    const held = users.reduce((sum, one) => sum + one.memory, 0);
    const parts = users.map((one) => ({
      share: one.memory / total, colour: one.user ? g.theme.ofUser(one.user) : "rest", title: `${one.name}: ${t.bytes(one.memory)}`,
    }));
    return t.known(used) && used > held ? [...parts, { share: (used - held) / total, colour: "rest", title: "unknown" }] : parts;
  };

  // Memory by user, the most first: [{user, name, memory}], of those whose memory is known.
  g.byUser = function (holders) {
    const found = new Map();
    for (const one of holders.filter((other) => t.known(other.memory))) {
      const name = one.user || (one.user === null ? "others" : "unknown");
      const known = found.get(name) || { user: one.user || "", name, memory: 0 };
      known.memory += one.memory;
      found.set(name, known);
    }
    return [...found.values()].sort((one, other) => other.memory - one.memory);
  };

  function whoCell(row) {
    const { gpu, runs } = row;
    const lines = [];
    if (row.state === "lost" || row.state === "unreadable" || gpu.state === "stale") {
      lines.push(g.make("div", {}, g.make("span", { class: `tag ${gpu.state === "stale" ? "warn" : "bad"}`, text: reason(gpu) })));
    }
    for (const run of runs.slice(0, RUNS)) {
      lines.push(g.make("div", { class: "who" }, g.person(run.user),
        g.make("a", { class: "name", href: `#/run/${encodeURIComponent(run.id)}`, text: run.name }),
        run.phase && run.phase !== "train" ? g.make("span", { class: "tag", text: run.phase }) : null));
      if (run.epoch) { lines.push(progress(run)); }
    }
    if (runs.length > RUNS) { lines.push(more(gpu, `and ${runs.length - RUNS} more runs`)); }
    const shown = new Set(runs.map((run) => run.id));
    const others = gpu.holders.filter((one) => !shown.has(one.run));
    for (const one of others.slice(0, SHOWN)) { lines.push(holder(one)); }
    const rest = others.slice(SHOWN).reduce((sum, one) => sum + one.count, 0);
    if (rest) { lines.push(more(gpu, `and ${rest} more ${rest === 1 ? "process" : "processes"}`)); }
    const current = !["stale", "lost", "unreadable"].includes(row.state);
    if (gpu.processes_unknown) { lines.push(g.make("div", { class: "mut", text: `processes unknown: ${gpu.processes_unknown}` })); }
    else if ((gpu.unlisted || (!gpu.empty && current)) && !runs.length && !gpu.holders.length) { lines.push(g.make("div", { class: "mut", text: "unknown: the driver lists no process" })); }
    delete part(row.key).tag;
    if (row.state === "held" || row.state === "free") {
      const tag = g.make("span", { class: `tag ${row.state === "held" ? "warn" : "ok"}` });
      part(row.key).tag = tag;
      lines.push(g.make("div", {}, tag));
    } else if (!lines.length) {
      lines.push(g.make("span", { class: "mut", text: row.state === "stale" ? t.MISSING : "no process" }));
    }
    return lines;
  }

  const reason = (gpu) => {
    const text = gpu.reason || STATES[gpu.state] || gpu.state;
    return gpu.state === "stale" && t.known(gpu.age) && gpu.age >= 1 ? `stale ${t.span(gpu.age)}: ${text}` : text;
  };

  const more = (gpu, text) => g.make("div", {}, g.make("a", { class: "mut", href: `#/gpu/${gpu.index}`, text }));

  // Someone with memory here and no run: the user and programs, or the pid of a process that cannot be seen.
  function holder(one) {
    const rest = one.count - one.names.length;
    const names = one.names.join(", ") + (one.names.length && rest > 0 ? ` and ${rest} more` : "");
    if (one.user === null) { return g.make("div", { class: "mut", text: `and ${one.count} more processes` }); }
    if (one.user) { return g.make("div", { class: "who" }, g.person(one.user), g.make("span", { class: "name mut", text: names })); }
    const pid = one.count === 1 ? `pid ${one.pid}` : `${one.count} processes`;
    return g.make("div", { class: "who" }, g.make("span", { class: "mut", text: "unknown" }),
      g.make("span", { class: "name mut", text: names ? `${names} (${pid})` : `(${pid})` }));
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
      key: gpu.uuid, gpu, runs: gpu.runs.map((id) => runs.get(id)).filter(Boolean), state: g.feed.stateOf(gpu),
    }));
    table.node.classList.toggle("dense", about.gpus.length > 8);
    table.show(page.list);
    const fresh = g.feed.isFresh();
    page.fresh = fresh;
    const free = page.list.filter((row) => row.state === "free").map((row) => row.gpu);
    heads.free.node.classList.toggle("some", free.length > 0);
    g.putValue(heads.free.value, fresh ? `${free.length} of ${about.gpus.length}` : t.MISSING);
    g.fill(heads.chips, free.map((gpu) => gpu.index), () => [
      ...free.slice(0, CHIPS).map((gpu) => g.make("a", {
        class: "chip", href: `#/gpu/${gpu.index}`, text: free.length > 3 ? String(gpu.index) : `GPU ${gpu.index}`, "aria-label": `GPU ${gpu.index}`,
      })),
      free.length > CHIPS ? g.make("span", { class: "mut", text: `+${free.length - CHIPS}` }) : null].filter(Boolean));
    g.put(heads.free.more, fresh ? summary(page.list) : "");
    g.notes(look, fresh ? about.look : [], fresh ? "Nothing stands out." : "Nothing is known of now.");
    page.tick();
  };

  // What is worth a look, each note with where to look; `nothing` where there is none.
  g.notes = function (place, notes, nothing) {
    g.fill(place, [notes, nothing], () => (notes.length ? notes : [{ text: nothing }]).map((note) => (
      g.make("li", {}, note.link
        ? g.make("a", { href: note.link }, g.make("span", { class: `tag ${note.level}`, text: note.about }), g.make("span", { text: note.text }))
        : g.make("span", { class: "mut", text: note.text })))));
  };

  // What the GPUs that are not free do: `allocated, idle: GPU 3`, or what is unknown, or that all work.
  function summary(list) {
    const of = (...states) => list.filter((row) => states.includes(row.state)).map((row) => row.gpu.index).join(", ");
    const idle = of("held");
    const unknown = of("unknown", "stale", "lost", "unreadable", "idle");
    const said = [idle && `allocated, idle: GPU ${idle}`, unknown && `unknown: GPU ${unknown}`].filter(Boolean);
    if (said.length) { return said.join("; "); }
    const busy = list.filter((row) => row.state === "busy").length;
    return !busy ? "" : busy === list.length ? "all are in use" : "the others are in use";
  }

  page.tick = function () {
    if (!page.list) { return; }
    const feed = g.feed;
    if (page.fresh !== feed.isFresh()) { page.about(); return; }
    for (const row of page.list) {
      const parts = part(row.key);
      const now = feed.current(row.gpu);
      const role = row.state === "held" ? "warn" : ["free", "stale", "lost"].includes(row.state) ? "mut"
        : g.theme.ofUser((row.runs[0] || row.gpu.holders[0] || {}).user);
      if (parts.canvas) { g.spark(parts.canvas, feed.spark.t, feed.spark.gpus.get(row.key) || [], feed.clock(), WINDOW, role); }
      g.putValue(parts.now, t.percent(now["gpu.utilization"]));
      g.put(parts.memory, t.bytes(now["gpu.memory_used"]));
      const limit = row.gpu.power_limit;
      g.putValue(parts.power, t.known(now["gpu.power"]) || limit ? `${t.count(now["gpu.power"])} ${limit ? `/ ${t.watts(limit)}` : "W"}` : t.MISSING);
      g.putValue(parts.temperature, t.celsius(now["gpu.temperature"]));
      if (parts.tag) { g.put(parts.tag, tagText(row.gpu, feed.now)); }
    }
    headlines();
  };

  function tagText(gpu, now) {
    const since = t.known(gpu.since) ? `${gpu.at_least ? "at least " : ""}${t.span(now - gpu.since)}` : "";
    if (gpu.state === "held") { return since ? `allocated, idle for ${since}` : "allocated, idle"; }
    return since ? `free for ${since}` : "free";
  }

  const mean = (values) => (values.length ? values.reduce((a, b) => a + b, 0) / values.length : NaN);

  // Sums are of the GPUs that tell; where some do not, the line below says of how many.
  function headlines() {
    const feed = g.feed;
    const all = page.list.map((row) => ({ gpu: row.gpu, now: feed.values.get(row.key) || {} }));
    const of = (name) => all.filter((one) => t.known(one.now[name]));
    const sum = (values) => (values.length ? values.reduce((a, b) => a + b, 0) : NaN);
    const some = (found) => (found.length && found.length < all.length ? `of ${found.length} of ${all.length} GPUs` : "");
    const busy = of("gpu.utilization");
    g.putValue(heads.utilization.value, t.percent(mean(busy.map((one) => one.now["gpu.utilization"]))));
    const past = mean([...feed.spark.gpus.values()].map((column) => mean(column.filter(t.known))).filter(t.known));
    g.put(heads.utilization.more, some(busy) || (t.known(past) ? `${t.percent(past)} over ten minutes` : ""));
    const sized = of("gpu.memory_used").filter((one) => t.known(one.gpu.memory_total));
    const counted = sized.length ? sized : of("gpu.memory_used");
    const used = sum(counted.map((one) => one.now["gpu.memory_used"]));
    const total = sum(sized.map((one) => one.gpu.memory_total));
    g.putValue(heads.memory.value, t.known(used) ? `${t.gibibytes(used)} ${sized.length ? `/ ${t.gibibytes(total)} ` : ""}GiB` : t.MISSING);
    g.put(heads.memory.more, some(counted) || (t.known(total) ? `${t.percent(used / total)} of the server` : ""));
    const drawing = of("gpu.power");
    const power = sum(drawing.map((one) => one.now["gpu.power"]));
    const limits = drawing.map((one) => one.gpu.power_limit);
    const limit = limits.every(t.known) ? sum(limits) : NaN;
    g.putValue(heads.power.value, !t.known(power) ? t.MISSING
      : limit > 1000 ? `${(power / 1000).toFixed(2)} / ${(limit / 1000).toFixed(1)} kW`
        : `${t.count(power)} ${t.known(limit) ? `/ ${t.watts(limit)}` : "W"}`);
    g.put(heads.power.more, some(drawing) || (t.known(power) ? `${(power * 0.024).toFixed(1)} kWh a day at this rate` : ""));
    const hot = of("gpu.temperature").sort((one, other) => other.now["gpu.temperature"] - one.now["gpu.temperature"])[0];
    g.putValue(heads.hottest.value, t.celsius(hot && hot.now["gpu.temperature"]));
    g.put(heads.hottest.more, hot ? `GPU ${hot.gpu.index}` : "");
  }

  g.states = STATES;
})(window.gpumon);
