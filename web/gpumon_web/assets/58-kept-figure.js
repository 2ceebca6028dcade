// A chart that comes whole with what the ledger keeps, and anew while it grows: it stays under a zoom, which is in the
// address, and so in a link. One that says where finer points of a part come from (`finer`) is drawn with them there.
"use strict";
(function (g) {
  // `place`: the element with data-kept-figure; gives what a page does with it.
  g.keptFigure = function (place) {
    const { keptFigure: name, loading, empty, whole } = place.dataset;
    const ask = g.asker();
    const back = g.make("button", { type: "button", class: "back", text: whole, hidden: true, click: () => go(null) });
    const note = g.make("p", { class: "empty", text: loading });
    const words = g.make("span", { class: "key cells" });
    const chart = g.panels(place, go);
    const head = place.closest(".card").querySelector(".cardhead");
    const over = g.overview(go);
    const choice = g.panelChoice(name, (all) => all.filter((one) => one.usual).map((one) => one.key), () => shownAgain(true));
    let range = null; // somebody's zoom, [from, to] in seconds; null: all
    let shown = null; // the whole chart
    let came = null; // as it came
    let wanted = null; // the finer part that was asked for last: what it is of, from, to
    let part = null; // that one, with its chart, once it came
    let timer = 0;
    let wasSilent = false;
    const explorer = g.explorer(() => document.title, explored);
    head.querySelector("h2").after(words, back);
    head.append(g.chartTools(chart, go), choice.node, explorer, g.chartFiles(chart, () => document.title, explorer));
    place.before(over.node);
    place.after(note);
    g.hide(place, true);

    function go(wished) {
      const all = shown && edges(shown);
      range = wished && all ? g.within(wished, all) : wished;
      g.setArguments(g.ofRange(range));
      g.hide(back, !range);
      if (shown) { shownAgain(true); }
      refine();
    }

    // The address of the chart as a figure: the panels and the time that are seen.
    function explored() {
      const time = range ? `&from=${range[0]}&to=${range[1]}` : "";
      return `${shown.figure}&panels=${encodeURIComponent(choice.shown().join(","))}${time}${g.position.exact()}`;
    }

    const edges = (doc) => [doc.begin, doc.end];
    const holds = (found) => Boolean(found) && found.of === shown.finer && found.from <= range[0] && range[1] <= found.to;
    const best = () => (range && holds(part) ? { ...part.doc, begin: shown.begin, end: shown.end } : shown);

    // Of a run that went on when something was last heard: nothing is known of it since.
    const isSilent = () => Boolean(shown && shown.goesOn) && !g.feed.isFresh() && g.feed.state !== "ended";
    function timed(doc) {
      wasSilent = isSilent();
      if (!wasSilent) { return doc; }
      const until = g.feed.clock();
      return { ...doc, end: Math.max(doc.end, g.text.known(until) ? until : doc.end), heard: doc.end, until, silent: { title: g.feed.oldState(), age: g.feed.silence() } };
    }

    // The panels that the viewer chose, of the best chart that there is.
    function shownAgain(now) {
      if (!shown) { return; }
      const keys = choice.shown();
      const doc = timed(best());
      chart.show({ ...doc, panels: doc.panels.filter((panel) => keys.includes(panel.key)) }, range, now);
      over.show(shown, range);
      const step = doc.step ? `points of ${g.text.short(doc.step)}, shade: lowest to highest` : "";
      g.put(words, [step, doc.cut].filter(Boolean).join(", "));
    }

    // Finer points once the zoom settles; what was on its way for another zoom comes to nothing.
    function refine() {
      clearTimeout(timer);
      timer = range && shown && shown.finer ? setTimeout(load, g.SETTLES) : 0;
    }

    function load() {
      if (!range || !shown || !shown.finer) { return; }
      const [from, to] = g.roomy(range);
      const mine = { of: shown.finer, from, to };
      wanted = mine;
      ask(`${mine.of}&from=${from}&to=${to}${g.position.exact()}`, (found) => {
        if (wanted !== mine || !shown || shown.finer !== mine.of) { return; }
        if (!found) { wanted = null; return; } // asked for with the next whole one
        part = found.chart && found.chart.step < shown.step ? { ...mine, doc: g.document(found.chart) } : null;
        if (range) { shownAgain(false); }
      });
    }

    // A link may name any time: one that has nothing of the chart shows all of it.
    function bound(doc) {
      if (!range) { return; }
      const [low, high] = edges(doc);
      const [from, to] = range;
      range = to <= low || from >= high ? null : g.within([Math.max(from, low), Math.min(to, high)], [low, high]);
    }

    function draw() {
      const found = g.feed.view.figures.get(name);
      g.hide(place, !found);
      g.hide(note, Boolean(found));
      g.put(note, found === undefined ? loading : empty);
      if (!found) { over.hide(); }
      if (found && found !== came) {
        const isFirst = !shown;
        const end = shown ? shown.end : Infinity;
        came = found;
        shown = g.document(found);
        bound(shown);
        choice.offer(shown.all);
        shownAgain(isFirst);
        // What ended where the chart did goes on now; what lies before stays as it came.
        if (!wanted || wanted.of !== shown.finer || wanted.to >= end) { refine(); }
      }
      if (shown && isSilent() !== wasSilent) { shownAgain(false); }
      g.hide(back, !range || !found);
    }

    return {
      open(params) {
        range = g.rangeOf(params);
        choice.open(params);
        if (shown) { bound(shown); shownAgain(true); }
        draw();
        refine();
      },
      clear() { shown = came = wanted = part = null; clearTimeout(timer); chart.clear(); draw(); },
      about: draw,
      tick() { if (isSilent()) { shownAgain(false); } }, // else it comes with what the ledger keeps
    };
  };
})(window.gpumon);
