// A machine without a GPU: what was looked for, what to do, the machine's own numbers, past runs, and a simulation to try.
"use strict";
(function (g) {
  const COMMAND = "gpumon web --source sim --port 0";
  const EVERY = 30; // s
  const RUNS = 8;
  const t = g.text;
  const page = { title: "No GPU" };
  g.pages = g.pages || {};
  g.pages.none = page;
  const ask = g.asker();
  let parts;
  let asked = 0;

  page.build = function (section) {
    parts = {
      why: g.make("p", { role: "alert" }), runs: g.make("ul", { class: "look" }),
      cpu: g.headline("CPU"), memory: g.headline("Memory"), load: g.headline("Load"), swap: g.headline("Swap"),
    };
    section.append(
      g.make("div", { class: "head" }, g.make("h1", { text: "No GPU" })),
      g.make("section", { class: "card prose", "aria-label": "Why there is no GPU" }, parts.why,
        g.make("p", {}, "On a machine with NVIDIA GPUs ", g.make("code", { text: "nvidia-smi" }),
          " lists them; if it does not, install or load the driver. GPUs appear here as soon as the driver lists them."),
        g.make("p", {}, "To see gpumon with eight simulated GPUs, run ", g.make("code", { text: COMMAND }), " and open the link that it prints.")),
      g.make("h2", { class: "part", text: "This machine" }),
      g.make("div", { class: "headlines four" }, ...["cpu", "memory", "load", "swap"].map((name) => parts[name].node)),
      g.card("Runs", parts.runs));
  };

  page.show = function () { asked = 0; page.tick(); };
  page.about = function () { page.tick(); };

  page.tick = function () {
    const { about, host, problem } = g.feed;
    const driver = about && about.driver ? `The NVIDIA driver ${about.driver} answers but lists no GPU.` : "gpumon asked the NVIDIA driver for GPUs and found none.";
    g.put(parts.why, problem ? `gpumon asked the NVIDIA driver for GPUs: ${problem}.` : driver);
    const now = host || {};
    g.putValue(parts.cpu.value, t.percent(now.cpu_utilization));
    g.putValue(parts.memory.value, t.ofTotal(now.memory_used, now.memory_total));
    g.put(parts.memory.more, t.known(now.memory_used) && now.memory_total ? `${t.percent(now.memory_used / now.memory_total)} in use` : "");
    g.putValue(parts.load.value, t.plain(now.load));
    g.put(parts.load.more, "running or waiting tasks, mean of a minute");
    g.putValue(parts.swap.value, now.swap_total === 0 ? "none" : t.ofTotal(now.swap_used, now.swap_total));
    if (performance.now() < asked) { return; }
    asked = performance.now() + EVERY * 1000;
    ask("api/runs", (found) => {
      if (!found) { asked = performance.now() + 3000; return; }
      const runs = found.runs.slice(0, RUNS);
      g.fill(parts.runs, runs.map((run) => [run.id, run.name, run.state, run.user, run.started]), () => [
        ...runs.map((run) => g.make("li", {}, g.make("a", { href: `#/run/${encodeURIComponent(run.id)}` },
          g.stateTag(run.state), g.make("span", { text: `${g.runName(run)}, ${run.user || "unknown"}, ${t.moment(run.started)}` })))),
        g.make("li", {}, found.runs.length ? g.make("a", { href: "#/runs", text: "All runs" })
          : g.make("span", { class: "mut", text: found.problem ? `Past runs are unavailable: ${found.problem}` : "No runs yet." }))]);
    });
  };
})(window.gpumon);
