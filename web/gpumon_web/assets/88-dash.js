// Dash's own scripts, which stand in a template of the document: loaded once the page is drawn.
"use strict";
(function (g) {
  let loaded = null;

  // A script in a template was never run, and a copy of it made by cloning never is.
  function copy({ src, text }) {
    return src ? g.make("script", { src }) : g.make("script", { text });
  }

  // Gives a promise of Dash having begun to draw its layout; loads once.
  g.loadDash = function () {
    loaded = loaded || new Promise((done) => { (window.requestIdleCallback || setTimeout)(done); }).then(load);
    return loaded;
  };

  // Those from files in their order, and then those that are written out, the last of which starts Dash.
  async function load() {
    const scripts = [...document.getElementById("dash").content.querySelectorAll("script")].map(copy);
    const files = scripts.filter((script) => script.src);
    const arrived = files.map((script) => new Promise((done, failed) => {
      script.async = false;
      script.addEventListener("load", done);
      script.addEventListener("error", failed);
    }));
    document.body.append(...files);
    await Promise.all(arrived);
    document.body.append(...scripts.filter((script) => !script.src));
  }
})(window.gpumon);
