// Paper: light whatever the screen has, as wide as tables and charts need, all rows that are here, and when it was printed.
"use strict";
(function (g) {
  g.isPrinting = false;

  function begin() {
    if (g.isPrinting) { return; }
    g.isPrinting = true;
    const now = Date.now() / 1000;
    const { feed } = g;
    const isOfThen = g.text.known(feed.now) && (feed.recorded || !feed.isFresh() || !feed.answered);
    const of = isOfThen ? `values of ${g.text.moment(feed.now)}, ` : "";
    document.body.dataset.printed = `${of}printed ${g.text.moment(now).slice(0, 16)}, ${Intl.DateTimeFormat().resolvedOptions().timeZone}`;
    document.documentElement.classList.add("printing");
    g.theme.lend("light");
    g.fitTables();
  }

  function end() {
    if (!g.isPrinting) { return; }
    g.isPrinting = false;
    document.documentElement.classList.remove("printing");
    g.theme.lend(null);
  }

  g.printer = function () {
    window.addEventListener("beforeprint", begin);
    window.addEventListener("afterprint", end);
    const paper = window.matchMedia("print"); // of tools that show how it would be
    paper.addEventListener("change", () => { if (paper.matches) { begin(); } else { end(); } });
    if (paper.matches) { begin(); }
  };
})(window.gpumon);
