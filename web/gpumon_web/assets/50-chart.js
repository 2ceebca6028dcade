// One Plotly figure: the theme's colors put in, epochs numbered where there is room, and a zoom that stays
// while the figure is live. Plotly itself is fetched when the first figure is opened.
"use strict";
(function (g) {
  const PLOTLY = "assets/plotly-basic.min.js?m=4.1.1";
  const STEPS = [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 2000, 5000, 10000];
  const LABEL_ROOM = 34;
  const LETTER = 8; // px, with what keeps two numbers apart
  const BUSY = 5; // a figure takes at most one fifth of the time
  const narrow = window.matchMedia("(max-width: 860px), (pointer: coarse)");
  let loading = null;

  g.plotly = function () {
    loading = loading || new Promise((done, failed) => {
      const script = g.make("script", { src: PLOTLY });
      script.addEventListener("load", () => done(window.Plotly));
      script.addEventListener("error", () => { loading = null; failed(new TypeError("no Plotly")); });
      document.head.append(script);
    });
    return loading;
  };

  // Minutes that the viewer's time of day is behind UTC, as it changes with summer.
  const behind = (milliseconds) => new Date(milliseconds).getTimezoneOffset() || 0; // a link may name what is no time

  // Plotly draws a number (ms since 1970) as the viewer's time of day. Where the clocks were changed, an hour would lie
  // over another one or be missing: such a number is drawn as the time of day that it is by the clocks of `minutes`.
  function placed(number, minutes) {
    if (typeof number !== "number" || behind(number) === minutes) { return number; }
    const there = new Date(number - minutes * 60000);
    return Number.isNaN(there.getTime()) ? number : there.toISOString().slice(0, 23).replace("T", " ");
  }

  // The way back: Plotly tells of a range as text.
  function toSeconds(shown, minutes) {
    if (typeof shown === "number") { return shown / 1000; }
    const [year, month, day, hour, minute, second] = String(shown).split(/[- T:]/).map(Number);
    return Date.UTC(year, month - 1, day, hour || 0, (minute || 0) + minutes, 0) / 1000 + (second || 0);
  }

  // `times in UTC+1`, where a chart reaches over a change of the clocks.
  function zone(minutes) {
    const size = Math.abs(minutes);
    const rest = size % 60 ? `:${String(size % 60).padStart(2, "0")}` : "";
    return `times in UTC${minutes > 0 ? "−" : "+"}${Math.floor(size / 60)}${rest}: the clocks were changed`;
  }

  // `@u0/0.4` under a key of a color is a role of the theme; no other text is taken for one.
  function painted(value, key) {
    if (typeof value === "string") {
      const found = key.endsWith("color") && /^@(\w+?)(?:\/([\d.]+))?$/.exec(value);
      return found ? g.theme.color(found[1], found[2]) : value;
    }
    if (Array.isArray(value)) {
      return value.length && typeof value[0] === "object" && value[0] ? value.map((one) => painted(one, "")) : value;
    }
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, painted(one, name)]));
    }
    return value;
  }

  // Numbers of epochs for what is seen, as many as the bands have room for, none on another.
  function numbers(bands, from, to, pixels) {
    const seen = bands.filter(([begin, end]) => end > from && begin < to);
    if (!seen.length || to <= from) { return []; }
    const at = (time) => ((time - from) / (to - from)) * pixels;
    const extent = at(Math.min(to, seen[seen.length - 1][1])) - at(Math.max(from, seen[0][0]));
    const every = STEPS.find((step) => seen.length / step <= Math.max(2, extent / LABEL_ROOM)) || STEPS[STEPS.length - 1];
    const found = [];
    let taken = -Infinity;
    for (const [begin, end, number] of seen) {
      const a = Math.max(begin, from);
      const b = Math.min(end, to);
      const wide = at(b) - at(a);
      if (number % every || (every === 1 && wide < 16)) { continue; }
      const text = every === 1 && wide > 70 ? `epoch ${number}` : String(number);
      const x = every === 1 ? (a + b) / 2 : a;
      const half = (text.length * LETTER) / 2;
      if (at(x) - half < taken) { continue; }
      taken = at(x) + half;
      found.push({
        x: x * 1000, y: 1, xref: "x", yref: "paper", xanchor: "center", yanchor: "bottom",
        text, showarrow: false, font: { color: "@mut", size: 11 },
      });
    }
    return found;
  }

  // A value between two gaps has no line to its neighbors: it is a dot.
  function withDots(line) {
    const lone = line.y.map((value, at) => value !== null && (line.y[at - 1] ?? null) === null && (line.y[at + 1] ?? null) === null);
    if (!lone.includes(true)) { return line; }
    return { ...line, mode: "lines+markers", marker: { color: line.line.color, opacity: 1, line: { width: 0 }, size: lone.map((one) => (one ? 3 : 0)) } };
  }

  // Plotly fills an area across its gaps: the area of a line with gaps is a shape of its own for each stretch.
  function withArea(line) {
    const first = line.y.findIndex((value) => value !== null);
    const gap = line.y.indexOf(null, first);
    if (line.fill !== "tozeroy" || first < 0 || gap < 0) { return [line]; }
    const area = { x: [], y: [] };
    let open = false;
    line.y.forEach((value, at) => {
      if (value !== null) {
        if (!open) { area.x.push(line.x[at]); area.y.push(0); open = true; }
        area.x.push(line.x[at]);
        area.y.push(value);
      }
      const next = line.y[at + 1];
      if (open && (next === null || next === undefined)) {
        area.x.push(line.x[at], line.x[at]);
        area.y.push(0, null);
        open = false;
      }
    });
    return [
      { type: "scatter", mode: "lines", ...area, yaxis: line.yaxis, fill: "toself", fillcolor: line.fillcolor,
        line: { width: 0, color: line.fillcolor }, hoverinfo: "skip", name: "", showlegend: false, meta: { what: "area" } },
      { ...line, fill: "none" },
    ];
  }

  // A window inside of what there is, as wide as it was where that can be.
  g.within = function ([from, to], [low, high]) {
    const wide = Math.min(to - from, high - low);
    const begin = Math.max(low, Math.min(from, high - wide));
    return [begin, begin + wide];
  };

  // Finer points are asked for so many ms after the last zoom, with some room to move on both sides.
  g.SETTLES = 180;
  g.roomy = ([from, to]) => [Math.max(0, from - (to - from) / 2), to + (to - from) / 2];

  // A stretch of time in an address, in seconds since 1970.
  g.ofRange = (range) => ({ from: range && range[0].toFixed(1), to: range && range[1].toFixed(1) });
  g.rangeOf = function (params) {
    const range = [Number(params.get("from")), Number(params.get("to"))];
    return params.has("from") && range.every(g.text.known) && range[0] < range[1] ? range : null;
  };

  // `place` an empty element; `zoomed(range or null)` is told when somebody zooms, pans, or goes back.
  g.chart = function (place, zoomed) {
    let figure = null;
    let range = null; // what is shown, [from, to] in seconds; null: all there is
    let held = false; // a pointer is down: a redraw would take the figure out of the hand
    let clocks = 0; // by which the times of day are those of the whole axis, as from `behind`
    let waiting = 0;
    let rest = 0;
    let wired = false;

    place.addEventListener("pointerdown", () => { held = true; });
    for (const name of ["pointerup", "pointercancel"]) {
      window.addEventListener(name, () => { held = false; }, true);
    }

    const at = (number) => placed(number, clocks);

    function layout() {
      const all = painted(figure.layout, "");
      const pixels = Math.max(100, place.clientWidth - all.margin.l - all.margin.r);
      const shown = range || edges();
      const small = narrow.matches;
      const font = { color: g.theme.color("mut"), size: 11, family: getComputedStyle(document.body).fontFamily };
      all.autosize = true;
      if (small) { all.showlegend = false; } // it would lie over the lines; the page has one of its own
      all.paper_bgcolor = g.theme.color("card"); // Plotly gives the line under the pointer an edge that contrasts with it
      all.plot_bgcolor = "rgba(0,0,0,0)";
      all.font = font;
      all.dragmode = small ? false : "zoom";
      all.hoverlabel = {
        bgcolor: g.theme.color("card"), bordercolor: g.theme.color("line"), align: "left",
        font: { color: g.theme.color("ink"), size: 11, family: font.family },
      };
      all.margin = { ...all.margin, ...(small ? { l: 68, r: 8 } : {}) };
      for (const [name, axis] of Object.entries(all)) {
        if (/^[xy]axis/.test(name) && axis.visible !== false) {
          Object.assign(axis, {
            gridcolor: name[0] === "x" ? "rgba(0,0,0,0)" : g.theme.color("line"), zeroline: false,
            linecolor: g.theme.color("line"), exponentformat: axis.ticksuffix ? "none" : "e", minexponent: isLarge(name) ? 6 : 3, tickfont: { color: g.theme.color("mut"), size: 11 },
          });
        }
      }
      Object.assign(all.xaxis, {
        hoverformat: "%Y-%m-%d %H:%M:%S", showspikes: true, spikemode: "across", spikesnap: "cursor",
        spikethickness: 1, spikedash: "solid", spikecolor: g.theme.color("mut", 0.5),
        ticks: "outside", ticklen: 6, tickcolor: g.theme.color("line"), nticks: Math.max(3, Math.floor(pixels / 110)),
      });
      const ends = shown ? shown.map((time) => time * 1000) : [];
      if (shown) { all.xaxis.range = ends.map(at); all.xaxis.autorange = false; }
      const labels = figure.bands && shown ? painted(numbers(figure.bands, shown[0], shown[1], pixels), "") : [];
      const changed = ends.some((time) => behind(time) !== clocks) ? [painted({
        x: 1, y: 0, xref: "paper", yref: "paper", xanchor: "right", yanchor: "top", yshift: -24, text: zone(clocks), showarrow: false,
        font: { color: "@mut", size: 11 },
      }, "")] : [];
      all.annotations = [...(all.annotations || []), ...labels].map((one) => (one.xref === "x" ? { ...one, x: at(one.x) } : one)).concat(changed);
      all.shapes = (all.shapes || []).map((one) => ({ ...one, x0: at(one.x0), x1: at(one.x1) }));
      return all;
    }

    // What is shown by a begin and a step gets its times: Plotly would take the offset of the begin for all of them.
    function data() {
      const times = new Map();
      return figure.data.flatMap((trace) => {
        const found = painted(trace, "");
        if (trace.x0 !== undefined) {
          const key = `${trace.x0} ${trace.dx} ${trace.y.length}`;
          if (!times.has(key)) { times.set(key, trace.y.map((_, step) => at(trace.x0 + step * trace.dx))); }
          found.x = times.get(key);
          delete found.x0;
          delete found.dx;
        } else if (trace.x) {
          if (!times.has(trace.x)) { times.set(trace.x, trace.x.map(at)); } // another list is how Plotly knows of news
          found.x = times.get(trace.x);
        }
        if (!Array.isArray(found.y) || found.mode !== "lines" || found.fill === "toself" || found.stackgroup) { return [found]; }
        return withArea(withDots(found));
      });
    }

    // Whether the values of an axis are beyond one: their ticks are whole numbers, which need no exponent.
    function isLarge(axis) {
      const name = axis.replace("axis", "");
      return figure.data.some((trace) => (trace.yaxis || "y") === name && (trace.y || []).some((value) => Math.abs(value) >= 1));
    }

    function edges() {
      const given = figure.layout.xaxis.range;
      return given ? given.map((time) => time / 1000) : null;
    }

    function draw() {
      clearTimeout(waiting);
      waiting = 0;
      if (!figure || !place.isConnected || !place.clientWidth) { return; }
      g.plotly().then((plotly) => {
        if (held && place.matches(":hover")) { soon(); return; }
        const began = performance.now();
        const shown = range || edges();
        clocks = behind(shown ? shown[1] * 1000 : began);
        return plotly.react(place, data(), layout(), { displayModeBar: false, responsive: true, doubleClick: false, showTips: false })
          .then(() => {
            rest = began + BUSY * (performance.now() - began);
            g.attribute(place, "data-drawn", String(Number(place.dataset.drawn || 0) + 1));
            if (!wired) { wire(); }
          });
      }).catch(() => { soon(3000); });
    }

    function soon(least) {
      if (!waiting) { waiting = setTimeout(draw, Math.max(least || 60, rest - performance.now())); }
    }

    function wire() {
      wired = true;
      place.on("plotly_relayout", (change) => {
        if (!("xaxis.range[0]" in change || "xaxis.range" in change)) { return; }
        const given = change["xaxis.range"] || [change["xaxis.range[0]"], change["xaxis.range[1]"]];
        range = given.map((one) => toSeconds(one, clocks));
        zoomed(range);
        soon();
      });
      place.on("plotly_doubleclick", () => { zoomed(null); });
    }

    g.theme.on(() => { draw(); });
    window.addEventListener("resize", () => { soon(150); });

    return {
      // A figure, and what of it is seen; drawn at once when `now`, else when there is time.
      show(found, seen, now) {
        figure = found;
        range = seen;
        if (now) { draw(); } else { soon(); }
      },
      get figure() { return figure; },
      get whole() { return figure && edges(); },
      get range() { return range || (figure && edges()); },
      clear() { figure = null; },
    };
  };

  // What the shades behind the lines are.
  g.chartKey = function () {
    return g.make("span", { class: "key" },
      g.make("i", { class: "k-band", "aria-hidden": "true" }), "every other epoch",
      g.make("i", { class: "k-phase", "aria-hidden": "true" }), "not training");
  };

  // The parts of a stack by name and color, for screens on which the figure has no room for them.
  g.chartParts = function (figure) {
    return figure.data.filter((trace) => trace.showlegend).map((trace) => {
      const swatch = g.make("i");
      swatch.style.background = painted({ fillcolor: trace.fillcolor }, "").fillcolor;
      // Escaped for Plotly by the server, where it is a stranger's; these are our own words.
      return g.make("span", {}, swatch, trace.name);
    });
  };

  // Buttons that zoom and move without a mouse; `chart.range` is where they begin, `go(range)` where they lead.
  g.chartTools = function (chart, go) {
    const step = (name, title, change) => g.make("button", {
      type: "button", class: "tool", text: name, title, "aria-label": title,
      click: () => { const seen = chart.range; if (seen) { go(change(seen[0], seen[1], seen[1] - seen[0])); } },
    });
    return g.make("div", { class: "tools", role: "group", "aria-label": "Zoom and move" },
      step("‹", "Earlier", (a, b, wide) => [a - wide / 2, b - wide / 2]),
      step("+", "Zoom in", (a, b, wide) => [a + wide / 4, b - wide / 4]),
      step("−", "Zoom out", (a, b, wide) => [a - wide / 2, b + wide / 2]),
      step("›", "Later", (a, b, wide) => [a + wide / 2, b + wide / 2]));
  };
})(window.gpumon);
