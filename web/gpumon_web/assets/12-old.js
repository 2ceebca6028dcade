// What the page that still has a script of its own knows of now: the runs of the ring. Goes with that script.
"use strict";
(function (g) {
  const feed = g.feed;
  Object.assign(feed, { aboutNumber: 0, about: null });

  g.forget = function () { feed.aboutNumber = 0; };

  g.takeOld = function (delta) {
    if (delta.t.length) { feed.now = delta.t[delta.t.length - 1]; }
    const news = { reset: delta.spark !== undefined, delta, about: delta.about !== undefined, values: [], tables: new Map() };
    if (news.about) {
      feed.about = delta.about;
      const { gpus, runs, hostname } = delta.about;
      feed.server = { hostname, has_gpus: gpus.length > 0, home: gpus.length === 1 ? `#/gpu/${gpus[0].index}` : "" };
      g.theme.meet([...runs.map((run) => run.user), ...gpus.flatMap((gpu) => gpu.holders.map((one) => one.user || ""))]);
    }
    feed.aboutNumber = delta.about_number;
    return news;
  };

  // A name of nothing but spaces is none.
  g.runName = (run) => (/[\p{L}\p{N}\p{P}\p{S}]/u.test(run.name || "") ? run.name : run.id);

  const LEVEL = { running: "ok", finished: "", failed: "bad", died: "bad" };
  g.stateTag = (state) => g.make("span", { class: `tag ${LEVEL[state] === undefined ? "" : LEVEL[state]}`, text: state || g.text.MISSING });
})(window.gpumon);
