// A live figure of a page: fetched for the subject and the arguments of the address, grown by the page's lines at each
// tick, and kept under a zoom. The layout says where it comes from, which value names its subject, and which arguments
// have buttons.
"use strict";
(function (g) {
  const MOST = 2000;
  const ROOM = 200; // for what comes until the figure is asked for again
  const FUTURE = 600; // s beyond now that are asked for, so that a zoom that reaches to now goes on
  const SLACK = 600; // s that a link may reach beyond what there is
  const t = g.text;

  g.figure = function (place) {
    const { figure: address, subject: subjectName, outline: outlineName } = place.dataset;
    const ask = g.asker();
    const card = place.closest(".card");
    const windows = card.querySelector("[data-usual]");
    const options = [...windows.querySelectorAll("[data-value]")];
    const back = g.make("button", { type: "button", class: "back", text: "Back to live", hidden: true, click: () => go(null) });
    const choices = g.make("div", { class: "epochs-of", role: "group", "aria-label": "Epochs of", hidden: true });
    const cells = g.make("span", { class: "key cells" }); // beside the title, so that no zoom moves the figure
    const note = g.make("p", { class: "empty", hidden: true });
    const chart = g.chart(place, (range) => go(range));
    card.querySelector("h2").after(cells, g.chartKey(), back, g.chartTools(chart, (range) => go(range)));
    place.before(choices, note);
    let view = { window: windows.dataset.usual, range: null, run: "" };
    let subject = "";
    let tail = true; // whether the figure reaches to now
    let resets = 0; // how often lines had begun anew when the figure was asked for
    let begin = 0;
    let known = null; // [from, to] of what there is, in seconds
    let asked = ""; // what the figure that is shown or asked for is of
    let pending = false;
    let outline = "";
    let rest = 0;
    let timer = 0;
    let first = true;
    let beyond = ""; // what a link asked for that there is not

    for (const button of options) {
      button.addEventListener("click", () => { view.window = button.dataset.value; go(null); });
    }

    function open(params) {
      const before = view.window;
      const given = params.get("window");
      view = {
        window: options.some((button) => button.dataset.value === given) ? given : windows.dataset.usual,
        range: g.rangeOf(params),
        run: params.get("run") || "",
      };
      beyond = "";
      if (before !== view.window) { clear(); }
      if (resets !== g.feed.resets) { clear(); g.hide(place, true); } // what it shows may lie behind where the viewer is now
      pressed();
    }

    function clear() { asked = ""; chart.clear(); first = true; }

    // A link that shows the same elsewhere; the browser's history keeps pages, not each turn of the wheel.
    function remember() {
      g.setArguments({ window: view.window, ...g.ofRange(view.range), run: view.run || null });
      g.moved();
    }

    function go(range) {
      view.range = range && known ? g.within(range, [known[0], Math.max(known[1], g.feed.now)]) : range;
      beyond = "";
      remember();
      pressed();
      if (chart.figure) { chart.show(chart.figure, seen(), true); }
      clearTimeout(timer);
      timer = setTimeout(() => load(true), range ? g.SETTLES : 0);
    }

    function pressed() {
      for (const button of options) {
        g.attribute(button, "aria-pressed", String(!view.range && button.dataset.value === view.window));
      }
      g.hide(back, !view.range);
      g.put(back, g.feed.recorded ? "Back to the position" : "Back to live");
    }

    // What of the figure is seen: what somebody zoomed to, else the window up to now.
    function seen() {
      if (view.range) { return view.range; }
      const now = g.feed.clock();
      if (view.window === "all") { return [Math.min(begin, now - 10), now]; }
      const length = Number(view.window);
      return [Math.max(now - length, Math.min(begin, now - Math.min(length, 30))), now];
    }

    // The figure anew: when it is of something else, when an epoch began, or when it has grown too long.
    function load(must) {
      const { values } = g.feed.view;
      const named = values.get(subjectName) || "";
      if (!named) { return; }
      if (named !== subject) { subject = named; clear(); }
      const now = values.get(outlineName);
      const wanted = JSON.stringify([g.feed.resets, subject, view]);
      if (!must && wanted === asked && (now === outline || performance.now() < rest)) { return; }
      asked = wanted;
      outline = now;
      if (resets !== g.feed.resets) { resets = g.feed.resets; tail = false; } // what comes next does not join on
      let query = view.window === "all" ? "" : `&window=${view.window}`;
      if (view.range) {
        const [start, until] = g.roomy(view.range);
        const end = Math.min(until, g.feed.now + FUTURE);
        query = start < end ? `&from=${start}&to=${end}` : "&window=10"; // what there is comes with every answer
      }
      query += g.position.exact();
      if (view.run) { query += `&run=${encodeURIComponent(view.run)}`; }
      if (!chart.figure) { g.hide(note, false); g.put(note, "Loading the chart …"); g.hide(place, true); }
      pending = true;
      ask(`${address}${encodeURIComponent(subject)}&points=${MOST - ROOM}${query}`, (found, took) => {
        pending = false;
        rest = performance.now() + Math.max(2000, 20000 * took);
        if (!found) { asked = ""; return; }
        known = t.known(found.known.begin) ? [found.known.begin, found.known.end] : null;
        const outside = clamp();
        const drawable = !outside && found.figure.data.some((trace) => trace.meta.what === "line");
        g.hide(place, !drawable);
        const text = outside || beyond || (drawable ? kept(found.known) : "No samples in this period.");
        g.hide(note, !text);
        g.put(note, text);
        g.put(cells, drawable ? wide(found.figure.wide) : "");
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

    // What is no sample any more: the mean of a stretch, its extremes upright in the middle.
    const wide = (seconds) => (seconds >= 10 ? `means of ${t.span(seconds)}, lowest and highest in the middle` : "");

    // Which run's epochs are drawn, where several ran at the same time.
    function choose(runs) {
      g.hide(choices, runs.every((run) => run.drawn));
      g.fill(choices, runs, () => ["Epochs of", ...runs.map((run) => g.make("button", {
        type: "button", class: "choice", text: run.name, "aria-pressed": String(run.drawn),
        click: () => { view.run = run.id; remember(); load(true); },
      }))]);
    }

    // All lines share one list of times, so that what is new is put in once.
    function tidy(figure) {
      const lines = figure.data.filter((trace) => trace.meta.what === "line");
      for (const line of lines) { line.x = lines[0].x; }
    }

    // Points that are new at the end of the lines.
    function grow({ t: times, lines: values }) {
      const figure = chart.figure;
      if (!figure || !times.length || !tail) { return; }
      const lines = figure.data.filter((trace) => trace.meta.what === "line");
      if (!lines.length) { return; }
      const x = lines[0].x;
      if (x.length + times.length > MOST) { // a shorter figure, with these points in it, is on its way
        if (!pending) { asked = ""; load(false); }
        return;
      }
      const last = x[x.length - 1] || 0;
      times.forEach((time, at) => {
        if (time * 1000 <= last + 1) { return; }
        x.push(Math.round(time * 1000));
        for (const line of lines) {
          const value = (values[line.meta.metric] || [])[at];
          line.y.push(value === null || value === undefined ? null : value * line.meta.factor);
        }
      });
      const band = figure.data.find((trace) => trace.meta.what === "band");
      const end = x[x.length - 1];
      if (band && outline) {
        const newest = figure.bands[figure.bands.length - 1];
        if (newest && known && newest[1] * 1000 >= last - 3000 * g.feed.interval) { newest[1] = end / 1000; band.x[band.x.length - 1] = end; }
      }
      const from = view.range || view.window === "all" ? -Infinity : (g.feed.now - Number(view.window)) * 1000;
      const old = x.findIndex((time) => time >= from);
      if (old > 30) {
        x.splice(0, old);
        for (const line of lines) { line.y.splice(0, old); }
      }
      chart.show(figure, seen());
    }

    return {
      open,
      clear() { clear(); g.hide(place, true); },
      about() { load(false); },
      tick(news) {
        load(false);
        if (news && news.delta && !news.delta.series.whole) { grow(news.delta.series); }
      },
    };
  };
})(window.gpumon);
