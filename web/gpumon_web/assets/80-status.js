// How things are, in the head of every page: live, stale, reconnecting, replayed or simulated, and what is wrong.
"use strict";
(function (g) {
  const WORDS = { connecting: "connecting", live: "live", stale: "stale", reconnecting: "reconnecting", locked: "locked out" };
  let said = "";

  g.status = function () {
    const feed = g.feed;
    const place = document.getElementById("live");
    place.className = `live ${feed.state}`;
    g.put(place, feed.state === "live" ? `live · ${feed.interval >= 1 ? g.text.duration(feed.interval).replace(".0", "") : `${Math.round(feed.interval * 1000)} ms`}` : WORDS[feed.state]);
    g.attribute(place, "title", feed.said);
    // Read out only when it is something else, not each second.
    if (said !== feed.state) {
      said = feed.state;
      g.put(document.getElementById("said"), WORDS[feed.state]);
      document.body.dataset.state = feed.state;
    }
    const label = document.getElementById("label");
    g.hide(label, !feed.label);
    g.put(label, feed.label);
    const host = document.getElementById("hostname");
    g.hide(host, !(feed.about && feed.about.hostname));
    g.put(host, (feed.about && feed.about.hostname) || "");
    const problem = document.getElementById("problem");
    const text = problemText();
    g.hide(problem, !text);
    g.put(problem, text);
  };

  // What is read out as an alert has no seconds in it that count up.
  function problemText() {
    const feed = g.feed;
    if (feed.state === "locked") { return "This browser may not read any more: open the link that gpumon web printed when it started."; }
    if (feed.problem) { return feed.problem; }
    if (feed.state === "stale") { return feed.said.replace(/ \([^()]* ago\)$/, "").replace(/stopped [\d:. a-z]*? ago$/, "stopped a while ago"); }
    if (feed.state === "reconnecting" && !feed.about) { return "gpumon web does not answer. This page tries again by itself."; }
    if (feed.state === "live" && !feed.about) { return "Waiting for the first numbers."; }
    if (feed.about && !feed.about.gpus.length) { return "There is no GPU on this server, or none that its driver shows."; }
    return feed.leftOut;
  }
})(window.gpumon);
