// Runs, live and past: whose, how far, how long, what they cost.
"use strict";
(function (g) {
  const EVERY = 10; // s
  const LEVEL = { running: "ok", finished: "", failed: "bad", died: "bad" };
  const t = g.text;
  const page = { title: "Runs", alone: true };
  g.pages = g.pages || {};
  g.pages.runs = page;
  const ask = g.asker();
  let table;
  let search;
  let problem;
  let rows = [];
  let asked = 0;
  let outline = "";
  let loaded = false;

  page.build = function (section) {
    search = g.make("input", { type: "search", class: "search", placeholder: "Name or user", "aria-label": "Show only runs whose name or user has this in it", spellcheck: "false" });
    search.addEventListener("input", draw);
    problem = g.make("p", { class: "empty", hidden: true });
    table = g.table("Runs", columns(), { order: "started", down: true, className: "runs" });
    section.append(
      g.make("div", { class: "head" }, g.make("h1", { text: "Runs" }), search),
      g.make("section", { class: "card", "aria-label": "Runs" }, problem, table.node));
  };

  // A name of nothing but spaces is none.
  g.runName = (run) => (/[\p{L}\p{N}\p{P}\p{S}]/u.test(run.name || "") ? run.name : run.id);

  g.stateTag = (state) => g.make("span", { class: `tag ${LEVEL[state] === undefined ? "" : LEVEL[state]}`, text: state || t.MISSING });

  function columns() {
    const live = (run) => run.live || {};
    return [
      { key: "name", title: "Run", head: true, value: (run) => run.name, sign: (run) => [run.name, run.id],
        draw: (run) => [g.make("a", { class: "row", href: `#/run/${encodeURIComponent(run.id)}`, text: g.runName(run) })] },
      { key: "user", title: "User", value: (run) => run.user, sign: (run) => run.user, draw: (run) => [g.person(run.user)] },
      { key: "state", title: "State", value: (run) => run.state, sign: (run) => run.state, draw: (run) => [g.stateTag(run.state)] },
      { key: "started", title: "Started", value: (run) => run.started, text: (run) => t.age(run.started, g.feed.now || Date.now() / 1000) },
      { key: "seconds", title: "Time", number: true, value: (run) => lasted(run), text: (run) => t.duration(lasted(run)) },
      { key: "epochs", title: "Epochs", number: true, value: (run) => run.epochs_done,
        sign: (run) => [live(run).epoch, run.epochs_done, run.epochs_planned, live(run).progress, live(run).left, run.user],
        draw: (run) => epochs(run) },
      { key: "utilization", title: "Utilization", number: true, value: (run) => run.utilization_mean, text: (run) => t.percent(run.utilization_mean) },
      { key: "energy", title: "Energy", number: true, value: (run) => run.energy, text: (run) => t.joules(run.energy) },
      { key: "gpus", title: "GPUs", number: true, value: (run) => gpus(run), text: (run) => t.count(gpus(run)) },
      { key: "framework", title: "Framework", value: (run) => run.framework, text: (run) => run.framework || t.MISSING },
    ];
  }

  const gpus = (run) => (typeof run.gpus === "number" ? run.gpus : ((run.live || {}).gpus || []).length || null);
  const lasted = (run) => (run.state === "running" && t.known(run.started) && t.known(g.feed.now) ? g.feed.now - run.started : run.seconds);

  function epochs(run) {
    const live = run.live || {};
    if (run.state !== "running" || !live.epoch) {
      const done = t.known(run.epochs_done) ? t.count(run.epochs_done) : live.epoch || t.MISSING;
      return [run.epochs_planned && t.known(run.epochs_done) ? `${done} of ${run.epochs_planned}` : done];
    }
    return [g.make("div", { class: "progress" }, g.make("span", { text: live.epoch }),
      live.progress === null ? null : g.bar([{ share: live.progress, colour: g.theme.ofUser(run.user) }], "bar thin"),
      live.left === null ? null : g.make("span", { text: `${t.span(live.left)} left` }))];
  }

  page.show = function () { asked = 0; page.tick(); };

  page.about = function () {
    const now = JSON.stringify(((g.feed.about || {}).runs || []).map((run) => [run.id, run.state, run.epoch]));
    if (now !== outline) { outline = now; asked = 0; }
    page.tick();
  };

  page.tick = function () {
    // Who is here now gets a color first, so that it is the same on every page.
    if (g.feed.state === "connecting") { return; }
    if (performance.now() < asked) { if (rows.length) { draw(); } return; }
    asked = performance.now() + EVERY * 1000;
    ask("api/runs", (found, took) => {
      asked = performance.now() + Math.max(EVERY, took * 20) * 1000;
      if (!found) { asked = performance.now() + 3000; return; }
      g.theme.meet(found.runs.map((run) => run.user));
      loaded = true;
      rows = found.runs.map((run) => ({ ...run, ...(run.live && run.seconds === undefined ? { live: run.live } : {}), key: run.id }));
      g.hide(problem, !found.problem);
      g.put(problem, found.problem ? `Past runs are not shown: ${found.problem}` : "");
      draw();
    });
  };

  function draw() {
    const wanted = search.value.trim().toLowerCase();
    table.say(!loaded ? "Loading the runs …" : rows.length ? "No run has this in its name or user."
      : "No run is known yet. A training shows up here once it uses a callback of gpumon, or gpumon.run().");
    table.show(wanted ? rows.filter((run) => `${run.name} ${run.user} ${run.id}`.toLowerCase().includes(wanted)) : rows);
  }
})(window.gpumon);
