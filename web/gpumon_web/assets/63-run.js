// One run: what it is and how far, its course with the epochs behind it, every epoch as a row, and its ranks.
"use strict";
(function (g) {
  const EVERY = 5; // s, while it goes on
  const OVER = 600; // s, of one that is over: it may be resumed, or its last epoch be kept late
  const LOGGED = 4;
  const PHASES = 200;
  const t = g.text;
  const page = { title: "Run", alone: true };
  g.pages = g.pages || {};
  g.pages.run = page;
  const ask = g.asker();
  const askRest = g.asker();
  let parts;
  let chart;
  let view = { id: "", gpu: "", range: null };
  let found = null;
  let older = new Map(); // epochs that came, with the run or later, by ordinal; null while the rest is asked for
  let asked = 0;
  let outline = "";
  let table = null;
  let tableNames = "";
  let mostEnergy = 0;
  let ranks = null;

  page.build = function (section) {
    parts = {
      title: g.make("h1"), state: g.make("span", { class: "tag" }), facts: g.make("span", { class: "facts" }),
      epoch: g.headline("Epoch"), left: g.headline("Time left"), mean: g.headline("Epoch time"),
      utilization: g.headline("Utilization"), energy: g.headline("Energy"),
      devices: g.make("div", { class: "seg", role: "group", "aria-label": "GPU" }),
      back: g.make("button", { type: "button", class: "back", text: "Whole run", hidden: true, click: () => go(null) }),
      place: g.make("div", { class: "plot", role: "img", "aria-label": "Timeline of this run" }),
      parts: g.make("div", { class: "parts", "aria-hidden": "true" }),
      note: g.make("p", { class: "empty", hidden: true }),
      marks: g.make("ul", { class: "look" }),
      csv: g.make("a", { class: "button", text: "Download as CSV", download: true }),
      epochs: g.make("div"), ranks: g.make("div"),
    };
    parts.bar = g.make("span");
    parts.epoch.extra.append(parts.bar);
    chart = g.chart(parts.place, go);
    parts.markCard = g.card("Noted", parts.marks);
    const epochCard = g.card("Epochs", parts.epochs);
    epochCard.querySelector(".cardhead").append(parts.csv);
    parts.rankCard = g.card("Ranks", parts.ranks);
    section.append(
      g.make("div", { class: "head" }, parts.title, parts.state, parts.facts),
      g.make("div", { class: "headlines" }, ...["epoch", "left", "mean", "utilization", "energy"].map((name) => parts[name].node)),
      parts.course = g.make("section", { class: "card", "aria-label": "Course" },
        g.make("div", { class: "cardhead" }, g.make("h2", { text: "Course" }), g.chartKey(), parts.back, g.chartTools(chart, go), parts.devices),
        parts.parts, parts.place, parts.note),
      parts.markCard, parts.epochCard = epochCard, parts.rankCard);
    parts.headlines = section.querySelector(".headlines");
    parts.gone = g.make("p", { class: "empty", hidden: true });
    section.append(parts.gone);
  };

  page.show = function (params) {
    const range = [Number(params.get("from")), Number(params.get("to"))];
    const before = view.id + view.gpu;
    view = {
      id: params.get("id") || "", gpu: params.get("gpu") || "",
      range: params.has("from") && range.every(t.known) && range[0] < range[1] ? range : null,
    };
    if (before !== view.id + view.gpu) { found = null; older = new Map(); chart.clear(); clear(); }
    asked = 0;
    page.tick();
  };

  function clear() {
    g.put(parts.title, view.id);
    g.hide(parts.state, true);
    parts.facts.replaceChildren();
    for (const name of ["epoch", "left", "mean", "utilization", "energy"]) {
      g.putValue(parts[name].value, t.MISSING);
      g.put(parts[name].more, "");
    }
    for (const node of [parts.markCard, parts.rankCard, parts.csv, parts.gone, parts.place, parts.devices, parts.back]) { g.hide(node, true); }
    for (const node of [parts.headlines, parts.course, parts.epochCard]) { g.hide(node, false); }
    g.hide(parts.note, false);
    g.put(parts.note, "Loading this run …");
    if (table) { table.say("Loading the epochs …"); table.show([]); }
  }

  function address() {
    const gpu = view.gpu ? `gpu=${encodeURIComponent(view.gpu)}` : "";
    const range = view.range ? `from=${view.range[0].toFixed(1)}&to=${view.range[1].toFixed(1)}` : "";
    const query = [gpu, range].filter(Boolean).join("&");
    return `#/run/${encodeURIComponent(view.id)}${query ? `?${query}` : ""}`;
  }

  function go(range) {
    const all = chart.figure && chart.whole;
    view.range = range && all ? g.within(range, all) : range;
    range = view.range;
    history.replaceState(null, "", address());
    g.hide(parts.back, !range);
    if (chart.figure) { chart.show(chart.figure, range, true); }
  }

  const live = () => (g.feed.about && g.feed.about.runs.find((run) => run.id === view.id)) || null;

  page.about = function () {
    if (found) { g.hide(parts.gone, true); }
    const run = live();
    const now = run ? [run.id, run.state, run.epoch, run.phase].join() : "";
    if (now !== outline) { outline = now; asked = Math.min(asked, performance.now() + 1000); }
    page.tick();
  };

  page.tick = function () {
    if (found) { headlines(); }
    if (!view.id || performance.now() < asked) { return; }
    asked = performance.now() + 30000;
    ask(`api/run?id=${encodeURIComponent(view.id)}&gpu=${encodeURIComponent(view.gpu)}`, (answer, took) => {
      const goes = answer && answer.run && answer.run.state === "running";
      asked = performance.now() + Math.max(goes || answer === undefined ? EVERY : OVER, took * 20) * 1000;
      if (answer === null) { gone(); return; }
      if (!answer || !answer.run) { return; }
      const first = !found;
      found = answer;
      draw(first);
    });
  };

  function gone() {
    clear();
    g.put(parts.title, "No such run");
    for (const node of [parts.headlines, parts.course, parts.epochCard]) { g.hide(node, true); }
    g.hide(parts.gone, false);
    g.put(parts.gone, `No run here has the id ${view.id}. It may have been removed from the ledger, or belong to another server.`);
  }

  const merged = () => ({ ...found.run, ...live() });

  function draw(first) {
    const run = merged();
    g.put(parts.title, g.runName(run));
    g.hide(parts.state, false);
    g.fill(parts.facts, [run.user, run.framework, run.started, run.hostname, run.resumes], () => [
      g.person(run.user), fact("id", run.id), fact("with", run.framework), fact("on", run.hostname), fact("since", t.moment(run.started)),
      run.resumes ? fact("resumes", run.resumes) : null].filter(Boolean));
    const devices = found.devices || [];
    g.fill(parts.devices, [devices.map((one) => one.uuid), found.device], () => devices.map((one) => g.make("button", {
      type: "button", text: `GPU ${one.index}`, title: one.name, "aria-pressed": String(one.uuid === found.device),
      click: () => { view.gpu = one.uuid; history.replaceState(null, "", address()); asked = 0; page.tick(); },
    })));
    g.hide(parts.devices, devices.length < 2);
    const drawable = found.figure && found.figure.data.length > 0;
    g.hide(parts.place, !drawable);
    g.hide(parts.note, drawable);
    g.put(parts.note, drawable ? "" : "No daemon has recorded the timeline of this run yet.");
    g.hide(parts.back, !view.range);
    if (drawable) { g.fill(parts.parts, [found.figure.data.map((trace) => trace.showlegend && trace.name), g.theme.isDark()], () => g.chartParts(found.figure)); }
    if (drawable) { bound(); chart.show(withPhases(), view.range, first); }
    g.hide(parts.csv, !found.epochs.length);
    g.attribute(parts.csv, "href", `api/run.csv?id=${encodeURIComponent(view.id)}`);
    marks();
    epochs();
    rankTable();
    headlines();
  }

  // A link may name any time: one that has nothing of the run shows all of it.
  function bound() {
    const given = found.figure.layout.xaxis.range;
    if (!given || !view.range) { return; }
    const [low, high] = given.map((time) => time / 1000);
    const [from, to] = view.range;
    view.range = to <= low || from >= high ? null : g.within([Math.max(from, low), Math.min(to, high)], [low, high]);
    g.hide(parts.back, !view.range);
  }

  // Phases behind the lines, the newest where there are many: each shade takes Plotly a tenth of a millisecond.
  function withPhases() {
    const shades = (found.phases || []).slice(-PHASES).map(([begin, end]) => ({
      type: "rect", xref: "x", yref: "paper", x0: begin * 1000, x1: (end === null ? now() : end) * 1000, y0: 0, y1: 1,
      fillcolor: "@warn/0.1", line: { width: 0 }, layer: "below",
    }));
    const layout = found.figure.layout;
    return { ...found.figure, layout: { ...layout, shapes: [...(layout.shapes || []), ...shades] } };
  }

  // A run may come before the first tick.
  const now = () => (t.known(g.feed.now) ? g.feed.now : Date.now() / 1000);

  const fact = (name, value) => (value ? g.make("span", { class: "fact" }, `${name} `, g.make("b", { text: value })) : null);

  function headlines() {
    const run = merged();
    g.put(parts.state, run.state);
    parts.state.className = `tag ${{ running: "ok", failed: "bad", died: "bad" }[run.state] || ""}`;
    const summary = found.summary || {};
    const last = found.epochs[found.epochs.length - 1];
    // Of a run that is over, how many epochs it did: the number of its last one is another, where they count from 0.
    const done = `${t.count(summary.done || 0)}${found.run.epochs_planned ? ` of ${found.run.epochs_planned}` : ""}`;
    const running = run.state === "running";
    g.put(parts.epoch.node.querySelector(".what"), running ? "Epoch" : "Epochs done");
    g.putValue(parts.epoch.value, running ? run.epoch || (last ? String(last.epoch) : t.MISSING) : done);
    g.put(parts.epoch.more, running ? run.phase || `${done} done` : last ? `last: epoch ${last.epoch}` : "");
    g.fill(parts.bar, [run.progress, run.user], () => (t.known(run.progress) ? [g.bar([{ share: run.progress, color: g.theme.ofUser(run.user) }])] : []));
    const goes = run.state === "running";
    g.put(parts.left.node.querySelector(".what"), goes ? "Time left" : "Took");
    const lasted = goes && t.known(run.started) ? now() - run.started : found.run.seconds;
    g.putValue(parts.left.value, goes ? t.span(run.left) : t.span(lasted));
    g.put(parts.left.more, goes ? `${t.span(lasted)} so far` : run.ended ? `ended ${t.moment(run.ended)}` : "end not recorded");
    g.putValue(parts.mean.value, t.duration(summary.mean));
    g.put(parts.mean.more, t.known(summary.mean) ? `from ${t.duration(summary.least)} to ${t.duration(summary.most)}` : "");
    const total = found.total || {};
    g.putValue(parts.utilization.value, t.percent(total.utilization_mean));
    g.put(parts.utilization.more, t.known(total.idle_share) ? `idle ${t.percent(total.idle_share)} of the time` : "");
    g.putValue(parts.energy.value, t.joules(total.energy));
    g.put(parts.energy.more, t.known(total.power_mean) ? `${t.watts(total.power_mean)} on average` : "");
  }

  function marks() {
    const noted = (found.marks || []).filter((one) => one.mark === "out_of_memory");
    g.hide(parts.markCard, !noted.length);
    g.fill(parts.marks, noted, () => noted.slice(-20).reverse().map((one) => g.make("li", {},
      g.make("span", { class: "tag bad", text: "out of memory" }),
      g.make("span", { text: `${one.rank === null || found.ranks.length < 2 ? "" : `rank ${one.rank}, `}epoch ${one.epoch}, step ${one.step}, ${t.moment(one.time)}: requested ${t.bytes(one.asked)}, ${t.bytes(one.free)} free` }))));
  }

  function epochs() {
    const names = [...new Set(found.epochs.slice(-50).flatMap((one) => Object.keys(one.metrics)))].slice(0, LOGGED);
    if (!table || tableNames !== JSON.stringify(names)) {
      tableNames = JSON.stringify(names);
      table = g.table("Epochs", epochColumns(names), {
        order: "epoch", down: true, className: "epochs",
        empty: "No epoch has started yet.", rest,
      });
      parts.epochs.replaceChildren(table.node);
    }
    table.say("No epoch has started yet.");
    mostEnergy = (found.summary || {}).most_energy || 0;
    const rows = older || new Map();
    for (const one of found.epochs) { rows.set(one.ordinal, one); }
    table.show([...rows.values()].map((one) => ({ key: one.ordinal, ...one })), found.epochs_total);
  }

  // The newest epochs come with the run; the others once somebody scrolls to them, or sorts by something else.
  function rest() {
    if (older === null) { return; }
    older = null;
    askRest(`api/run/epochs?id=${encodeURIComponent(view.id)}`, (answer) => {
      older = new Map(((answer && answer.epochs) || []).map((one) => [one.ordinal, one])); // none: asked for again
      if (found) { epochs(); }
    });
  }

  // What goes on has taken as long as it goes on.
  const took = (one) => (t.known(one.seconds) || t.known(one.ended) || found.run.state !== "running" ? one.seconds : now() - one.begun);

  function epochColumns(names) {
    const peak = (one) => [one.framework_peak, one.run_allocated_peak, one.memory_used_peak].find(t.known) ?? null;
    // What was only read between steps is no less than that, and what was reached before no more.
    const sign = (one) => (t.known(one.framework_peak) ? (one.framework_peak_reached ? "" : "≤ ") : (t.known(one.run_allocated_peak) ? "≥ " : ""));
    return [
      { key: "epoch", title: "Epoch", head: true, value: (one) => one.ordinal, text: (one) => String(one.epoch) },
      { key: "seconds", title: "Time", number: true, value: took, text: (one) => t.duration(took(one)) },
      { key: "utilization", title: "Utilization", number: true, value: (one) => one.utilization_mean, sign: (one) => t.percent(one.utilization_mean),
        draw: (one) => [g.make("span", { class: "meter" }, g.make("span", { text: t.percent(one.utilization_mean) }),
          g.bar([{ share: one.utilization_mean, color: g.theme.ofUser(found.run.user) }]))] },
      { key: "idle", title: "Idle", help: "Share of the time in which no kernel ran", number: true, value: (one) => one.idle_share, text: (one) => t.percent(one.idle_share) },
      { key: "wait", title: "Waits for data", number: true, help: "Share of the time during which it was measured; – if it was not measured",
        value: (one) => one.wait_share, text: (one) => t.percent(one.wait_share) },
      { key: "beside", title: "Not training", help: "Time in phases other than training", number: true,
        value: (one) => one.beside, text: (one) => t.duration(one.beside) },
      { key: "peak", title: "Peak memory", help: "Of live tensors by the framework's own counter (≤: reached before), or as read between steps (≥); else of the device", number: true, value: peak,
        text: (one) => (t.known(peak(one)) ? sign(one) : "") + t.bytes(peak(one)) },
      { key: "energy", title: "Energy", number: true, value: (one) => one.energy, text: (one) => t.joules(one.energy, mostEnergy) },
      ...names.map((name, place) => ({ key: `logged-${place}`, title: name, number: true, className: "logged", value: (one) => (t.odd(one.metrics[name]) ? Infinity : one.metrics[name]),
        sign: (one) => one.metrics[name] ?? null, draw: (one) => [logged(one.metrics[name])] })),
      { key: "verdict", title: "Verdict", value: (one) => one.verdict.text, sign: (one) => one.verdict.text, draw: (one) => [g.make("span", { class: `tag ${one.verdict.level}`, text: one.verdict.text })] },
    ];
  }

  // A loss that is NaN is no missing value: the training has diverged.
  const logged = (value) => g.make("span", { class: t.odd(value) ? "alarm" : "", text: t.plain(value) });

  function rankTable() {
    g.hide(parts.rankCard, !(found.ranks || []).length);
    if (!ranks) {
      const gpus = (one) => one.gpus.map((gpu) => gpu.index).join(", ") || t.MISSING;
      ranks = g.table("Ranks", [
        { key: "rank", title: "Rank", head: true, value: (one) => one.rank, text: (one) => String(one.rank) },
        { key: "state", title: "State", value: (one) => one.state, sign: (one) => one.state, draw: (one) => [g.stateTag(one.state)] },
        { key: "gpus", title: "GPU", value: gpus, text: gpus },
        { key: "pid", title: "PID", number: true, value: (one) => one.pid, text: (one) => (one.pid ? String(one.pid) : t.MISSING) },
        { key: "steps", title: "Steps", number: true, value: (one) => one.steps, text: (one) => t.count(one.steps) },
        { key: "wait", title: "Wait for data", number: true, value: (one) => one.wait, text: (one) => t.duration(one.wait) },
        { key: "peak", title: "Peak memory", number: true, value: (one) => one.peak, text: (one) => t.bytes(one.peak) },
        { key: "ooms", title: "Out of memory", number: true, value: (one) => one.ooms, text: (one) => t.count(one.ooms) },
      ], { order: "rank" });
      parts.ranks.append(ranks.node);
    }
    ranks.show((found.ranks || []).map((one) => ({ ...one })));
  }
})(window.gpumon);
