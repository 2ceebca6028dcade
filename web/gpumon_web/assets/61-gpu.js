// One GPU: its numbers now, its metrics on one time axis with the epochs behind them, and its processes.
"use strict";
(function (g) {
  const WINDOWS = [["60", "1 min"], ["600", "10 min"], ["3600", "1 h"], ["all", "All"]];
  const USUAL = "600";
  const MOST = 2000;
  const ROOM = 200; // for what comes until the figure is asked for again
  const FUTURE = 600; // s beyond now that are asked for, so that a zoom that reaches to now goes on
  const SLACK = 600; // s that a link may reach beyond what there is
  const SETTLES = 180; // ms after the last zoom before finer points are asked for
  const t = g.text;
  const page = { title: "GPU" };
  g.pages = g.pages || {};
  g.pages.gpu = page;
  const ask = g.asker();
  let parts;
  let chart;
  let view = { gpu: "", window: USUAL, range: null, run: "" };
  let row = null;
  let tail = true; // whether the figure reaches to now
  let resets = 0; // how often values had begun anew when the figure was asked for
  let begin = 0;
  let known = null; // [from, to] of what there is, in seconds
  let asked = ""; // what the figure that is shown or asked for is of
  let outline = "";
  let rest = 0;
  let timer = 0;
  let first = true;
  let beyond = ""; // what a link asked for that there is not

  page.build = function (section) {
    parts = {
      title: g.make("h1"), name: g.make("span", { class: "mut" }), state: g.make("span", { class: "tag" }),
      others: g.make("nav", { class: "others", "aria-label": "GPUs" }),
      utilization: g.headline("Utilization"), memory: g.headline("Memory"), power: g.headline("Power"),
      temperature: g.headline("Temperature"), clock: g.headline("Clock"),
      windows: g.make("div", { class: "seg", role: "group", "aria-label": "Window" }),
      back: g.make("button", { type: "button", class: "back", text: "Back to live", hidden: true, click: () => go(null) }),
      place: g.make("div", { class: "plot", role: "img", "aria-label": "Metrics of this GPU over time" }),
      note: g.make("p", { class: "empty", hidden: true }),
      missing: g.make("p", { class: "mut missing", hidden: true }),
      split: g.make("div", { class: "split" }),
    };
    parts.divided = g.card("Memory", parts.split);
    parts.look = g.make("ul", { class: "look" });
    parts.lookCard = g.card("Attention", parts.look);
    parts.epochsOf = g.make("div", { class: "epochs-of", role: "group", "aria-label": "Epochs of", hidden: true });
    parts.bar = g.make("span");
    parts.memory.extra.append(parts.bar);
    chart = g.chart(parts.place, (range) => go(range));
    parts.windows.append(...WINDOWS.map(([value, text]) => g.make("button", {
      type: "button", text, "data-window": value, click: () => { view.window = value; go(null); },
    })));
    parts.table = g.table("Processes", columns(), { order: "memory", down: true, empty: "No known process on this GPU." });
    section.append(
      g.make("div", { class: "head" }, parts.title, parts.state, parts.name, parts.others),
      g.make("div", { class: "headlines" }, ...["utilization", "memory", "power", "temperature", "clock"].map((name) => parts[name].node)),
      parts.lookCard,
      parts.over = g.make("section", { class: "card", "aria-label": "Over time" },
        g.make("div", { class: "cardhead" }, g.make("h2", { text: "Over time" }), g.chartKey(), parts.back, g.chartTools(chart, go), parts.windows),
        parts.epochsOf, parts.note, parts.place, parts.missing),
      parts.divided,
      parts.processes = g.card("Processes", parts.table.node));
    parts.headlines = section.querySelector(".headlines");
  };

  function columns() {
    const run = (one) => (g.feed.about.runs.find((other) => other.id === one.run) || {}).name || one.run;
    return [
      { key: "user", title: "User", head: true, value: (one) => one.user, sign: (one) => one.user, draw: (one) => [g.person(one.user)] },
      { key: "name", title: "Program", value: (one) => one.name, text: (one) => one.name, className: "mono" },
      { key: "pid", title: "PID", number: true, value: (one) => one.pid, text: (one) => String(one.pid) },
      { key: "kind", title: "Kind", value: (one) => one.kind, text: (one) => one.kind || t.MISSING },
      { key: "memory", title: "GPU memory", number: true, value: (one) => one.memory, text: (one) => t.bytes(one.memory) },
      { key: "sm", title: "Busy", help: "Share of time in which its kernels ran", number: true, value: (one) => one.sm, text: (one) => t.percent(one.sm) },
      { key: "cpu", title: "CPU", help: "Of one core", number: true, value: (one) => one.cpu, text: (one) => t.percent(one.cpu) },
      { key: "started", title: "Running for", number: true, value: (one) => (one.started ? -one.started : null),
        text: (one) => (t.known(one.started) ? t.span(g.feed.now - one.started) : t.MISSING) },
      { key: "run", title: "Run", value: (one) => (one.run ? run(one) : null), sign: (one) => [one.run, one.run && run(one)],
        draw: (one) => [one.run ? g.make("a", { href: `#/run/${encodeURIComponent(one.run)}`, text: run(one) }) : t.MISSING] },
    ];
  }

  page.show = function (params) {
    const range = [Number(params.get("from")), Number(params.get("to"))];
    const window_ = params.get("window");
    const before = JSON.stringify([view.gpu, view.window]);
    view = {
      gpu: params.get("id") || view.gpu,
      window: WINDOWS.some(([value]) => value === window_) ? window_ : USUAL,
      range: params.has("from") && range.every(t.known) && range[0] < range[1] ? range : null,
      run: params.get("run") || "",
    };
    beyond = "";
    if (before !== JSON.stringify([view.gpu, view.window])) { asked = ""; chart.clear(); first = true; }
    page.about();
  };

  // A link that shows the same elsewhere; the browser's history keeps pages, not each turn of the wheel.
  function address() {
    const range = view.range ? `&from=${view.range[0].toFixed(1)}&to=${view.range[1].toFixed(1)}` : "";
    const run = view.run ? `&run=${encodeURIComponent(view.run)}` : "";
    return `#/gpu/${encodeURIComponent(view.gpu)}?window=${view.window}${range}${run}`;
  }

  function go(range) {
    view.range = range && known ? g.within(range, [known[0], Math.max(known[1], g.feed.now)]) : range;
    beyond = "";
    history.replaceState(null, "", address());
    pressed();
    if (chart.figure) { chart.show(chart.figure, seen(), true); }
    clearTimeout(timer);
    timer = setTimeout(() => load(true), range ? SETTLES : 0);
  }

  function pressed() {
    for (const button of parts.windows.children) {
      g.attribute(button, "aria-pressed", String(!view.range && button.dataset.window === view.window));
    }
    g.hide(parts.back, !view.range);
  }

  // What of the figure is seen: what somebody zoomed to, else the window up to now.
  function seen() {
    if (view.range) { return view.range; }
    const now = g.feed.clock();
    if (view.window === "all") { return [Math.min(begin, now - 10), now]; }
    const length = Number(view.window);
    return [Math.max(now - length, Math.min(begin, now - Math.min(length, 30))), now];
  }

  page.about = function () {
    const about = g.feed.about;
    if (!about) { return; }
    if (!view.gpu && about.gpus.length) { view.gpu = String(about.gpus[0].index); }
    row = about.gpus.find((gpu) => gpu.uuid === view.gpu || String(gpu.index) === view.gpu) || null;
    page.known = row;
    g.put(parts.title, row ? `GPU ${row.index}` : about.gpus.length ? "No such GPU" : "No GPU");
    g.put(parts.name, row ? row.name : "");
    const state = row && g.feed.stateOf(row);
    page.fresh = g.feed.isFresh();
    for (const node of [parts.state, parts.headlines, parts.over, parts.processes]) { g.hide(node, !row); }
    parts.headlines.classList.toggle("old", state === "stale");
    if (row) {
      g.put(parts.state, state === row.state && row.reason ? row.reason : g.stateText(row));
      parts.state.className = `tag ${{ busy: "ok", free: "ok", held: "warn", stale: "warn", idle: "", unknown: "" }[state] ?? "bad"}`;
    }
    const alone = row && about.gpus.length === 1 && page.fresh ? about.look : [];
    g.hide(parts.lookCard, !alone.length);
    g.notes(parts.look, alone, "");
    g.fill(parts.others, [about.gpus.map((gpu) => [gpu.index, g.feed.stateOf(gpu)]), row && row.index], () => about.gpus.map((gpu) => g.make("a", {
      href: `#/gpu/${gpu.index}?window=${view.window}`, "aria-current": row === gpu ? "page" : undefined,
      "aria-label": `GPU ${gpu.index}, ${g.stateText(gpu)}`,
    }, g.make("span", { class: `state ${g.feed.stateOf(gpu)}`, "aria-hidden": "true" }), String(gpu.index))));
    parts.table.say(row && row.processes_unknown ? (!about.processes_known ? "This recording has no process data."
      : `The process list is unknown: ${row.processes_unknown}.`)
      : row && row.unlisted ? "The driver lists no process, but memory is in use: its holder is unknown."
        : row && row.empty && page.fresh ? "No process uses this GPU." : "The driver lists no process, but there may be one.");
    parts.table.show(row ? row.processes.map((one) => ({ key: one.pid, ...one })) : []);
    const missing = row ? Object.entries(row.missing) : [];
    g.hide(parts.missing, !missing.length);
    g.put(parts.missing, absent(missing));
    divide();
    pressed();
    page.tick(null);
    load(false);
  };

  // `Not available: fan, memory activity (not in the recording).`: the metrics by their reason.
  function absent(missing) {
    const reasons = new Map();
    for (const [name, why] of missing) { reasons.set(why, [...(reasons.get(why) || []), name.replace(/^gpu\./, "").replace(/_/g, " ")]); }
    return reasons.size ? `Not available: ${[...reasons].map(([why, names]) => `${names.join(", ")} (${why})`).join("; ")}.` : "";
  }

  // Whose and what the memory is: a bar of its parts, and each with its colour and its size.
  function divide() {
    const split = row ? row.split.filter((part) => t.known(part.bytes)) : [];
    const total = row ? row.memory_total : 0;
    g.hide(parts.divided, !split.length);
    g.fill(parts.split, [split, total, g.theme.isDark()], () => {
      const drawn = split.map((part) => {
        const [colour, opacity] = part.colour.slice(1).split("/");
        return { ...part, share: part.bytes / total, colour, opacity: opacity || "1" };
      });
      return [g.bar(drawn, "bar tall"), g.make("dl", { class: "divided" }, ...drawn.map((part) => g.make("div", {},
        g.make("dt", {}, g.bar([{ ...part, share: 1 }], "bar dot"), part.title), g.make("dd", { text: t.bytes(part.bytes) }))))];
    });
  }

  // The figure anew: when it is of another GPU or window, when an epoch began, or when it has grown too long.
  function load(must) {
    if (!row) { return; }
    const run = g.feed.about.runs.find((one) => one.id === row.run);
    const now = run ? [run.id, run.epoch, run.phase, run.state].join() : "";
    const wanted = JSON.stringify([g.feed.resets, row.uuid, view.window, view.range, view.run]);
    if (!must && wanted === asked && (now === outline || performance.now() < rest)) { return; }
    asked = wanted;
    outline = now;
    if (resets !== g.feed.resets) { resets = g.feed.resets; tail = false; } // what comes next does not join on
    let query = view.window === "all" ? "" : `&window=${view.window}`;
    if (view.range) {
      const [from, to] = view.range;
      const end = Math.min(to + (to - from) / 2, g.feed.now + FUTURE);
      const start = Math.max(0, from - (to - from) / 2);
      query = start < end ? `&from=${start}&to=${end}` : "&window=10"; // what there is comes with every answer
    }
    if (view.run) { query += `&run=${encodeURIComponent(view.run)}`; }
    if (!chart.figure) { g.hide(parts.note, false); g.put(parts.note, "Loading the chart …"); g.hide(parts.place, true); }
    ask(`api/gpu?gpu=${encodeURIComponent(row.uuid)}&points=${MOST - ROOM}${query}`, (found, took) => {
      rest = performance.now() + Math.max(2000, 20000 * took);
      if (!found) { asked = ""; return; }
      known = t.known(found.known.begin) ? [found.known.begin, found.known.end] : null;
      const outside = clamp();
      const drawable = !outside && found.figure.data.some((trace) => trace.meta.what === "line");
      g.hide(parts.place, !drawable);
      const note = outside || beyond || (drawable ? kept(found.known) : "There are no samples of this GPU in this time.");
      g.hide(parts.note, !note);
      g.put(parts.note, note);
      choose(found.figure.runs);
      begin = found.begin;
      tail = !view.range || found.end >= g.feed.now - 2 * g.feed.interval;
      tidy(found.figure);
      chart.show(found.figure, seen(), first || must);
      first = false;
    });
  }

  // A link may name any time: it shows what there is of it, and says so. Gives what is wrong where there is nothing.
  function clamp() {
    if (!view.range || !known) { return ""; }
    const [from, to] = view.range;
    const end = Math.max(known[1], g.feed.now);
    const span = `from ${t.moment(known[0])} to ${t.moment(end)}`;
    if (to <= known[0] || from >= end) { return `There are no samples in the time of this link. Samples exist ${span}.`; }
    if (from < known[0] - SLACK || to > end + FUTURE) {
      beyond = `The time of this link is only partly sampled. Samples exist ${span}.`;
      view.range = [Math.max(from, known[0]), Math.min(to, end)];
    }
    return "";
  }

  const kept = (all) => (view.window === "all" && !view.range && all.cut ? `Only the last ${t.span(all.end - all.begin)} are kept.` : "");

  // Which run's epochs are drawn, where several ran at the same time.
  function choose(runs) {
    g.hide(parts.epochsOf, runs.every((run) => run.drawn));
    g.fill(parts.epochsOf, runs, () => ["Epochs of", ...runs.map((run) => g.make("button", {
      type: "button", class: "choice", text: run.name, "aria-pressed": String(run.drawn),
      click: () => { view.run = run.id; history.replaceState(null, "", address()); load(true); },
    }))]);
  }

  // All lines share one list of times, so that what is new is put in once.
  function tidy(figure) {
    const lines = figure.data.filter((trace) => trace.meta.what === "line");
    for (const line of lines) { line.x = lines[0].x; }
  }

  page.tick = function (delta) {
    if (!row) { return; }
    if (page.fresh !== g.feed.isFresh()) { page.about(); return; }
    const now = g.feed.current(row);
    g.putValue(parts.utilization.value, t.percent(now["gpu.utilization"]));
    g.put(parts.utilization.more, t.known(now["gpu.memory_utilization"]) ? `${t.percent(now["gpu.memory_utilization"])} memory activity` : "");
    g.putValue(parts.memory.value, t.ofTotal(now["gpu.memory_used"], row.memory_total));
    const held = g.byUser(row.holders);
    const shares = t.known(row.memory_total) && row.memory_total > 0 ? g.memoryParts(row, now["gpu.memory_used"]) : null;
    g.fill(parts.bar, shares && shares.map((part) => [part.title, Math.round(part.share * 200)]), () => (shares ? [g.bar(shares)] : []));
    const holders = held.map((one) => `${one.name} ${t.bytes(one.memory)}`);
    g.put(parts.memory.more, holders.slice(0, 3).join(", ") + (holders.length > 3 ? ` and ${holders.length - 3} more` : "")
      || (row.empty && page.fresh ? "no process" : "holder unknown"));
    g.putValue(parts.power.value, t.known(now["gpu.power"]) ? `${t.count(now["gpu.power"])} ${row.power_limit ? `/ ${t.watts(row.power_limit)}` : "W"}` : t.MISSING);
    g.put(parts.power.more, row.power_limit && t.known(now["gpu.power"]) ? `${t.percent(now["gpu.power"] / row.power_limit)} of its limit` : "");
    g.putValue(parts.temperature.value, t.celsius(now["gpu.temperature"]));
    g.putValue(parts.clock.value, t.megahertz(now["gpu.clock_sm"]));
    const since = row.since && page.fresh ? t.span(g.feed.now - row.since) : "";
    g.put(parts.temperature.more, "");
    g.put(parts.clock.more, since ? `idle for ${row.at_least ? "at least " : ""}${since}` : "");
    if (delta) { append(delta); }
  };

  function append(delta) {
    const figure = chart.figure;
    const columns_ = delta.gpus[row.uuid];
    if (!figure || !columns_ || !delta.t.length || !tail) { return; }
    const lines = figure.data.filter((trace) => trace.meta.what === "line");
    if (!lines.length) { return; }
    const times = lines[0].x;
    const last = times[times.length - 1] || 0;
    delta.t.forEach((time, at) => {
      if (time * 1000 <= last + 1) { return; }
      times.push(Math.round(time * 1000));
      for (const line of lines) {
        const value = (columns_[line.meta.metric] || [])[at];
        line.y.push(value === null || value === undefined ? null : value * line.meta.factor);
      }
    });
    const band = figure.data.find((trace) => trace.meta.what === "band");
    const end = times[times.length - 1];
    if (band && outline) {
      const open = figure.bands[figure.bands.length - 1];
      if (open && known && open[1] * 1000 >= last - 3000 * g.feed.interval) { open[1] = end / 1000; band.x[band.x.length - 1] = end; }
    }
    const from = view.range || view.window === "all" ? -Infinity : (g.feed.now - Number(view.window)) * 1000;
    const old = times.findIndex((time) => time >= from);
    if (old > 30) {
      times.splice(0, old);
      for (const line of lines) { line.y.splice(0, old); }
    }
    if (times.length > MOST) { asked = ""; load(false); }
    chart.show(figure, seen());
  }
})(window.gpumon);
