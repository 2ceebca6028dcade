// What is new, asked for once each interval: slower while nobody looks, at once when somebody does again.
// Keeps the last values, the last ten minutes of utilization, and who is on which GPU, for whichever page is shown.
"use strict";
(function (g) {
  const WINDOW = 600;
  const HIDDEN = 15;
  const SLOWEST = 15;
  const GROWTH = 1.7;
  const PATIENCE = 20000;
  const PATIENT = 5; // s
  const listeners = [];
  let timer = 0;
  let asking = null;
  let wait = 1;

  const feed = {
    boot: "", seq: 0, aboutNumber: 0, about: null, interval: 1,
    resets: 0, // how often all values began anew
    // connecting, live, stale, ended (a recording), reconnecting, locked
    state: "connecting", said: "", label: "", problem: "", leftOut: "",
    now: NaN, // the time of the newest values
    age: 0, // seconds for which the daemon had been silent when it was last asked; null where that is not known
    heard: 0, // when the server last answered
    host: null, // of a machine without a GPU
    values: new Map(), // uuid -> metric -> newest value
    spark: { t: [], gpus: new Map() },
    on(listener) { listeners.push(listener); },
    ask: poll,
    // Seconds for which nothing new has come; NaN where that is not known.
    silence() {
      if (feed.state === "live" || feed.state === "ended") { return 0; }
      return feed.age === null || !feed.heard ? NaN : feed.age + (performance.now() - feed.heard) / 1000;
    },
    // Whether what is shown is what is. One question that got no answer is no news yet.
    isFresh() {
      return feed.state === "live" || (feed.state === "reconnecting" && feed.wasLive && feed.silence() < Math.max(PATIENT, 3 * feed.interval));
    },
    // Where "now" is in charts: behind the newest values by as long as nothing new came.
    clock() {
      const silence = feed.silence();
      return feed.isFresh() || Number.isNaN(silence) ? feed.now : feed.now + silence;
    },
    // The newest values of a GPU, those of an earlier moment where it does not answer.
    current(gpu) { return gpu.last || feed.values.get(gpu.uuid) || {}; },
    // What a GPU does, as far as that is known now.
    stateOf(gpu) {
      return feed.isFresh() || gpu.state === "lost" || gpu.state === "unreadable" ? gpu.state : "stale";
    },
  };
  g.feed = feed;
  // The state of a GPU in words.
  g.stateText = (gpu) => {
    const state = feed.stateOf(gpu);
    return state === "stale" && feed.state === "ended" ? "ended" : g.states[state] || state;
  };

  function tell(news) {
    for (const listener of listeners) { listener(news); }
  }

  function take(delta) {
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
    const news = { reset, delta, about: delta.about !== undefined };
    if (news.about) {
      feed.about = delta.about;
      g.theme.meet([...delta.about.runs.map((run) => run.user), ...delta.about.gpus.flatMap((gpu) => gpu.holders.map((one) => one.user || ""))]);
    }
    feed.boot = delta.boot;
    feed.seq = delta.seq;
    feed.aboutNumber = delta.about_number;
    feed.interval = delta.interval;
    feed.label = delta.label;
    feed.problem = delta.problem;
    feed.leftOut = delta.left_out;
    feed.age = delta.live || delta.ended ? 0 : delta.age;
    feed.host = delta.host || null;
    feed.heard = performance.now();
    feed.wasLive = delta.live;
    feed.state = delta.live ? "live" : delta.ended && delta.age === 0 ? "ended" : "stale";
    feed.said = delta.state;
    return news;
  }

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

  async function poll() {
    clearTimeout(timer);
    if (asking) { return; }
    asking = new AbortController();
    let found = null;
    let failure = null;
    const limit = setTimeout(() => asking.abort(), PATIENCE);
    try {
      const address = `api/delta?boot=${encodeURIComponent(feed.boot)}&since=${feed.seq}&about=${feed.aboutNumber}`;
      const answer = await fetch(address, { signal: asking.signal, cache: "no-store", credentials: "same-origin" });
      if (!answer.ok) { throw new Refusal(answer.status); }
      found = await answer.json();
    } catch (error) {
      failure = error;
    }
    clearTimeout(limit);
    asking = null;
    if (failure) { failed(failure); return; }
    wait = 1;
    again(document.hidden ? HIDDEN : Math.max(1, feed.interval));
    tell(take(found));
  }

  class Refusal extends Error {
    constructor(status) { super(`refused: ${status}`); this.status = status; }
  }

  function failed(error) {
    const locked = error.status === 401;
    feed.state = locked ? "locked" : "reconnecting";
    feed.said = locked ? "open the link that gpumon web printed" : "reconnecting";
    wait = Math.min(SLOWEST, wait * GROWTH);
    again(document.hidden ? HIDDEN : wait);
    tell({ reset: false, delta: null, about: false });
  }

  function again(seconds) {
    clearTimeout(timer);
    timer = setTimeout(poll, seconds * 1000);
  }

  document.addEventListener("visibilitychange", () => { if (!document.hidden) { poll(); } });
  window.addEventListener("online", poll);
})(window.gpumon);
