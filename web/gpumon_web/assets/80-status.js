// How things are, in the head of every page: live, stale, reconnecting, replayed or simulated, and what is wrong.
"use strict";
(function (g) {
  const WORDS = {
    connecting: "connecting", live: "live", stale: "stale", ended: "ended", reconnecting: "reconnecting", locked: "signed out",
  };
  const AGAIN = "A log plays once: start 'gpumon web' with it again to see it from its begin.";
  // What to do, behind what is wrong and since when.
  const STEPS = {
    stale: "On the server, 'gpumon daemon status' says whether it runs, and 'gpumon daemon restart' starts it anew.",
    reconnecting: "Look whether the server and your tunnel are up; else start 'gpumon web' there again.",
  };

  // Whether the first sample is on its way: what nobody has seen yet is not stale.
  const waits = () => !g.feed.server && (g.feed.state === "live" || (g.feed.state === "stale" && g.feed.said.startsWith("not live yet")));

  // A recording is never live: it plays, or stands.
  function stateWords() {
    const { state, recorded, interval, answered } = g.feed;
    if (waits()) { return ["waiting", ""]; }
    if (state !== "live") { return [WORDS[state], ""]; }
    if (recorded) { return [g.position.isPaused ? "paused" : "playing", ` · ${g.text.clock(g.feed.now, g.feed.now)}`]; }
    if (!answered) { return ["not answered", ` · as of ${g.text.clock(g.feed.now, g.feed.now)}`]; }
    if (g.feed.problem) { return ["no GPU can be read", ""]; } // what the machine says of itself is of now, and no GPU is
    return ["live", ` · ${interval >= 1 ? g.text.duration(interval).replace(".0", "") : `${Math.round(interval * 1000)} ms`}`];
  }

  // The same in a word, for what is not of now.
  g.stateWord = () => WORDS[g.feed.state];

  let said = "";
  let timer = 0;

  g.status = function () {
    const feed = g.feed;
    const place = document.getElementById("live");
    place.className = `live ${waits() ? "waiting" : feed.state}${feed.state === "live" && (feed.problem || !feed.server || !feed.answered) ? " without" : ""}`;
    const [word, more] = stateWords();
    g.put(place, word + more);
    g.attribute(place, "title", feed.said);
    // Read out only when it is something else, not each second.
    if (said !== word) {
      said = word;
      g.put(document.getElementById("said"), word);
      document.body.dataset.state = feed.state;
    }
    g.attribute(document.body, "data-fresh", String(feed.isFresh()));
    g.attribute(document.body, "data-waits", String(waits()));
    g.attribute(document.body, "data-told", String(Boolean(feed.server)));
    g.attribute(document.body, "data-answered", String(feed.answered));
    g.attribute(document.body, "data-recorded", String(feed.recorded));
    g.player();
    g.title();
    const label = document.getElementById("label");
    g.hide(label, !feed.label);
    g.fill(label, feed.label, () => labelParts(feed.label));
    g.attribute(label, "title", feed.label);
    const host = document.getElementById("hostname");
    const name = (feed.server && feed.server.hostname) || "";
    g.hide(host, !name);
    g.put(host, name);
    const problem = document.getElementById("problem");
    const text = problemText();
    // The page of a machine without a GPU says why by itself.
    g.hide(problem, !text || (isProblem() && g.isWithoutGpus()));
    const isLocked = feed.state === "locked";
    const step = isOld() && !feed.recorded && !isLocked ? `. ${(feed.state === "stale" && feed.step) || STEPS[feed.state]}` : "";
    g.fill(problem, text, () => [text, g.make("span", { class: "ago", "aria-hidden": "true" }), step, ...(isLocked ? [isOld() ? ". " : " ", signIn(), "."] : [])]);
    const ago = problem.querySelector(".ago");
    if (ago) { g.put(ago, counts() ? ` (${g.text.span(feed.silence())} ago)` : ""); }
    clearTimeout(timer);
    if (!feed.isFresh()) { timer = setTimeout(g.status, 1000); }
  };

  // Name, speed and remarks of what is played: where room is short, the name loses letters, and the speed none.
  function labelParts(text) {
    const [, ...parts] = /^(.*?)( (?:×[\d.e+-]+|ended))?( \(.*\))?$/s.exec(text);
    return parts.map((part, at) => part && g.make("span", { class: ["name", "speed", "remarks"][at], text: part })).filter(Boolean);
  }

  // The form is what the server answers to this very address.
  function signIn() {
    const link = g.make("a", { href: location.hash || "#/", text: "Reload the page to sign in" });
    link.addEventListener("click", (click) => { click.preventDefault(); location.reload(); });
    return link;
  }

  const isOld = () => ["stale", "reconnecting", "locked"].includes(g.feed.state) && !g.feed.isFresh() && g.text.known(g.feed.now);
  const isProblem = () => Boolean(g.feed.problem) && g.feed.state !== "locked" && !isOld();
  const counts = () => isOld() && g.text.known(g.feed.silence());
  const lastSeen = () => (isOld() ? ` Last seen ${g.text.clock(g.feed.now, g.feed.clock())} ${g.text.zone(g.feed.now)}`.trimEnd() : "");

  // The same words as a sentence; a name in front, such as `nvidia-smi`, stays as it is written.
  const sentence = (text) => `${text.replace(/^[a-z](?=[a-z]* )/, (letter) => letter.toUpperCase())}${/[.!?]$/.test(text) ? "" : "."}`;

  // What is read out as an alert has no seconds in it that count up: those stand apart.
  function problemText() {
    const feed = g.feed;
    if (feed.state === "locked") { return `This browser is signed out.${lastSeen()}`; }
    if (isProblem()) { return sentence(feed.problem); } // what was wrong once is no news while nothing comes
    if (feed.state === "stale") { return `${why(feed.said)}.${lastSeen()}`; }
    if (feed.state === "ended") { return `The recording has ended. Its last values are from ${g.text.moment(feed.now)}.${g.position.known ? "" : ` ${AGAIN}`}`; }
    if (feed.state === "reconnecting" && (!feed.server || !feed.isFresh())) {
      return `gpumon web does not answer. This page keeps trying.${lastSeen()}`;
    }
    if (feed.state === "live" && !feed.server) { return "Waiting for the first sample."; }
    return feed.view.unread || (feed.leftOut && sentence(feed.leftOut));
  }

  // The state without its seconds: `Stale: the daemon is silent`.
  function why(words) {
    const text = words.replace(/:? last seen .*$/, "").replace(/ (\S+ )?\S+ ago$/, "");
    const whole = text === "stale" ? "stale: the daemon is silent" : text;
    return whole[0].toUpperCase() + whole.slice(1);
  }
})(window.gpumon);
