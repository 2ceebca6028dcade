// The title of the tab: what is asked of the page first, and how old it is where it is not of now.
"use strict";
(function (g) {
  const LONGEST = 80; // letters of a part: a run may have any name
  let page = "";

  // Of the page that is shown, whose name is `name` where that is new.
  g.title = function (name) {
    page = name || page;
    const { feed } = g;
    const told = feed.value("tab");
    const isFresh = feed.isFresh() && !["reconnecting", "locked"].includes(feed.state); // as the head of the page says it
    const said = (told && (isFresh ? told.text : told.old)) || page;
    const words = feed.server && !isFresh ? g.stateWord() : feed.recorded ? "replay" : "";
    const title = [words, said, (feed.server && feed.server.hostname) || "gpumon"].filter(Boolean).map((part) => part.slice(0, LONGEST)).join(" · ");
    if (page && document.title !== title) { document.title = title; }
  };
})(window.gpumon);
