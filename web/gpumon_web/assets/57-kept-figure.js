// A figure that comes whole with what the ledger keeps, and anew while it grows: it stays under a zoom, which is in the
// address, and so in a link. One that says where finer points of a part come from (`finer`) is drawn with them there.
"use strict";
(function (g) {
  // `place`: the element with data-kept-figure; gives what a page does with it.
  g.keptFigure = function (place) {
    const { keptFigure: name, loading, empty, whole } = place.dataset;
    const ask = g.asker();
    const back = g.make("button", { type: "button", class: "back", text: whole, hidden: true, click: () => go(null) });
    const parts = g.make("div", { class: "parts", "aria-hidden": "true" });
    const note = g.make("p", { class: "empty", text: loading });
    const chart = g.chart(place, go);
    let range = null; // somebody's zoom, [from, to] in seconds; null: all
    let shown = null; // the whole figure
    let wanted = null; // the finer part that was asked for last: what it is of, from, to
    let part = null; // that one, with its figure, once it came
    let timer = 0;
    place.closest(".card").querySelector("h2").after(g.chartKey(), back, g.chartTools(chart, go));
    place.before(parts);
    place.after(note);
    g.hide(place, true);

    function go(wished) {
      const all = shown && edges(shown);
      range = wished && all ? g.within(wished, all) : wished;
      g.setArguments(g.ofRange(range));
      g.hide(back, !range);
      if (shown) { chart.show(best(), range, true); }
      refine();
    }

    function edges(figure) {
      const given = figure.layout.xaxis.range;
      return given ? given.map((time) => time / 1000) : null;
    }

    const holds = (found) => Boolean(found) && found.of === shown.finer && found.from <= range[0] && range[1] <= found.to;
    const best = () => (range && holds(part) ? part.figure : shown);

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
        const { figure } = found;
        part = figure && figure.step < shown.step ? { ...mine, figure } : null;
        if (range) { chart.show(best(), range); }
      });
    }

    // A link may name any time: one that has nothing of the figure shows all of it.
    function bound(figure) {
      const all = edges(figure);
      if (!all || !range) { return; }
      const [low, high] = all;
      const [from, to] = range;
      range = to <= low || from >= high ? null : g.within([Math.max(from, low), Math.min(to, high)], [low, high]);
    }

    function draw() {
      const figure = g.feed.view.figures.get(name);
      g.hide(place, !figure);
      g.hide(note, Boolean(figure));
      g.put(note, figure === undefined ? loading : empty);
      if (figure) {
        g.fill(parts, [figure.data.map((trace) => trace.showlegend && trace.name), g.theme.isDark()], () => g.chartParts(figure));
        if (figure !== shown) {
          const isFirst = !shown;
          const [, end] = (shown && edges(shown)) || [null, Infinity];
          bound(figure);
          shown = figure;
          chart.show(best(), range, isFirst);
          // What ended where the figure did goes on now; what lies before stays as it came.
          if (!wanted || wanted.of !== figure.finer || wanted.to >= end) { refine(); }
        }
      }
      g.hide(back, !range || !figure);
    }

    return {
      open(params) {
        range = g.rangeOf(params);
        if (shown) { bound(shown); chart.show(best(), range, true); }
        draw();
        refine();
      },
      clear() { shown = wanted = part = null; clearTimeout(timer); chart.clear(); draw(); },
      about: draw,
      tick() { /* it comes with what the ledger keeps */ },
    };
  };
})(window.gpumon);
