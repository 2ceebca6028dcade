"use strict";
// Draws the figures that the page carries, in the colors of the viewer's theme, and again when the theme changes.
(function () {
  var figures = JSON.parse(document.getElementById("figures").textContent);
  var place = document.getElementById("timeline");
  var tabs = document.querySelectorAll(".tabs button");
  var dark = window.matchMedia("(prefers-color-scheme: dark)");
  var shown = 0;
  var range = null; // what the viewer zoomed to, kept from tab to tab

  function color(name, opacity) {
    var hex = getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
    var parts = [1, 3, 5].map(function (i) { return parseInt(hex.slice(i, i + 2), 16); });
    return "rgba(" + parts.join(",") + "," + (opacity === undefined ? 1 : opacity) + ")";
  }

  // Only under keys of colors, so that no text of a stranger is taken for one. Lists of numbers are passed on as they are.
  function painted(value, key) {
    if (typeof value === "string") {
      var found = /color$/.test(key) && /^@(\w+?)(?:\/([\d.]+))?$/.exec(value);
      return found ? color(found[1], found[2]) : value;
    }
    if (Array.isArray(value)) {
      var isOfParts = value.length && (key === "color" || (typeof value[0] === "object" && value[0]));
      return isOfParts ? value.map(function (v) { return painted(v, key === "color" ? key : ""); }) : value;
    }
    if (value && typeof value === "object") {
      var copy = {};
      Object.keys(value).forEach(function (k) { copy[k] = painted(value[k], k); });
      return copy;
    }
    return value;
  }

  function draw() {
    var figure = painted(figures[shown], "");
    if (range) { figure.layout.xaxis.range = range; }
    figure.layout.autosize = true;
    figure.layout.font.family = getComputedStyle(document.body).fontFamily;
    Plotly.react(place, figure.data, figure.layout, {
      responsive: true, displaylogo: false, modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    });
  }

  // Lines with equal times refer to one list of them.
  figures.forEach(function (figure) {
    figure.data.forEach(function (line) { line.x = figure.times[line.x]; });
  });
  if (!figures.length) { return; }
  tabs.forEach(function (tab, i) {
    tab.addEventListener("click", function () {
      shown = i;
      tabs.forEach(function (other, j) { other.setAttribute("aria-pressed", String(i === j)); });
      draw();
    });
  });
  dark.addEventListener("change", draw);
  draw();
  place.on("plotly_relayout", function (change) {
    if ("xaxis.range[0]" in change) { range = [change["xaxis.range[0]"], change["xaxis.range[1]"]]; }
    if (change["xaxis.autorange"]) { range = null; }
  });
})();
