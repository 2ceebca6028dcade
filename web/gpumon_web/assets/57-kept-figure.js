// A figure that comes whole with what the ledger keeps, and anew while it grows: it stays under a zoom, which is in the
// address, and so in a link.
"use strict";
(function (g) {
  // `place`: the element with data-kept-figure; gives what a page does with it.
  g.keptFigure = function (place) {
    const { keptFigure: name, loading, empty, whole } = place.dataset;
    const back = g.make("button", { type: "button", class: "back", text: whole, hidden: true, click: () => go(null) });
    const parts = g.make("div", { class: "parts", "aria-hidden": "true" });
    const note = g.make("p", { class: "empty", text: loading });
    const chart = g.chart(place, go);
    let range = null; // somebody's zoom, [from, to] in seconds; null: all
    let shown = null; // the figure that is drawn
    place.closest(".card").querySelector("h2").after(g.chartKey(), back, g.chartTools(chart, go));
    place.before(parts);
    place.after(note);
    g.hide(place, true);

    function go(wished) {
      const all = chart.figure && chart.whole;
      range = wished && all ? g.within(wished, all) : wished;
      g.setArguments(g.ofRange(range));
      g.hide(back, !range);
      if (chart.figure) { chart.show(chart.figure, range, true); }
    }

    // A link may name any time: one that has nothing of the figure shows all of it.
    function bound(figure) {
      const given = figure.layout.xaxis.range;
      if (!given || !range) { return; }
      const [low, high] = given.map((time) => time / 1000);
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
          bound(figure);
          shown = figure;
          chart.show(figure, range, isFirst);
        }
      }
      g.hide(back, !range || !figure);
    }

    return {
      open(params) {
        range = g.rangeOf(params);
        if (chart.figure) { bound(chart.figure); chart.show(chart.figure, range, true); }
        draw();
      },
      clear() { shown = null; chart.clear(); draw(); },
      about: draw,
      tick() { /* it comes with what the ledger keeps */ },
    };
  };
})(window.gpumon);
