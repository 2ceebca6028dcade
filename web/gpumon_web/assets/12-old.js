// Values as the pages that have scripts of their own know them: by GPU and metric, with who is on which GPU.
// Goes with the last of these pages.
"use strict";
(function (g) {
  const WINDOW = 600;
  const feed = g.feed;
  Object.assign(feed, {
    aboutNumber: 0, about: null,
    host: null, // of a machine without a GPU
    values: new Map(), // uuid -> metric -> newest value
    spark: { t: [], gpus: new Map() },
    // The newest values of a GPU, those of an earlier moment where it does not answer.
    current(gpu) { return gpu.last || feed.values.get(gpu.uuid) || {}; },
    // What a GPU does, as far as that is known now.
    stateOf(gpu) {
      return feed.isFresh() || gpu.state === "lost" || gpu.state === "unreadable" ? gpu.state : "stale";
    },
  });
  // The state of a GPU in words.
  const STATES = { held: "allocated, idle", unknown: "state unknown" };
  g.stateText = (gpu) => {
    const state = feed.stateOf(gpu);
    return state === "stale" ? feed.oldState() : STATES[state] || state;
  };

  g.forget = function () { feed.aboutNumber = 0; };

  g.takeOld = function (delta) {
    const reset = delta.spark !== undefined;
    if (reset) {
      feed.resets += 1;
      feed.values.clear();
      feed.spark = { t: delta.spark.t, gpus: new Map(Object.entries(delta.spark.gpus)) };
    }
    for (const [uuid, columns] of Object.entries(delta.gpus)) {
      const known = feed.values.get(uuid) || {};
      for (const [name, values] of Object.entries(columns)) {
        if (values.length) { known[name] = values[values.length - 1]; }
      }
      feed.values.set(uuid, known);
    }
    if (!reset && delta.t.length) { extend(delta); }
    if (delta.t.length) { feed.now = delta.t[delta.t.length - 1]; }
    const news = { reset, delta, about: delta.about !== undefined, values: [], tables: new Map() };
    if (news.about) {
      feed.about = delta.about;
      const { gpus, runs, hostname } = delta.about;
      feed.server = { hostname, has_gpus: gpus.length > 0, home: gpus.length === 1 ? `#/gpu/${gpus[0].index}` : "" };
      g.theme.meet([...runs.map((run) => run.user), ...gpus.flatMap((gpu) => gpu.holders.map((one) => one.user || ""))]);
    }
    feed.aboutNumber = delta.about_number;
    feed.host = delta.host || null;
    return news;
  };

  // A name of nothing but spaces is none.
  g.runName = (run) => (/[\p{L}\p{N}\p{P}\p{S}]/u.test(run.name || "") ? run.name : run.id);

  const LEVEL = { running: "ok", finished: "", failed: "bad", died: "bad" };
  g.stateTag = (state) => g.make("span", { class: `tag ${LEVEL[state] === undefined ? "" : LEVEL[state]}`, text: state || g.text.MISSING });

  // The small charts: the same columns longer by what is new, and shorter by what is too old.
  function extend(delta) {
    const spark = feed.spark;
    const before = spark.t.length;
    spark.t.push(...delta.t);
    const old = spark.t.findIndex((time) => time > delta.t[delta.t.length - 1] - WINDOW);
    spark.t.splice(0, old);
    for (const uuid of new Set([...spark.gpus.keys(), ...Object.keys(delta.gpus)])) {
      const column = spark.gpus.get(uuid) || new Array(before).fill(null);
      const fresh = delta.gpus[uuid];
      column.push(...(fresh ? fresh["gpu.utilization"] : new Array(delta.t.length).fill(null)));
      column.splice(0, old);
      spark.gpus.set(uuid, column);
    }
  }
})(window.gpumon);
