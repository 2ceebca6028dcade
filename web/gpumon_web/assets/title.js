// The title of the tab: what is asked of the page first, and how old it is where it is not of now.
// @ts-check
import { feed } from "./feed.js";
import { stateWord } from "./status.js";

const LONGEST = 80; // letters of a part: a run may have any name
let page = "";

// Of the page that is shown, whose name is `name` where that is new.
export function showTitle(name) {
  page = name || page;
  const tab = feed.value("tab");
  const isFresh = feed.isFresh() && !["reconnecting", "locked"].includes(feed.state); // as the head of the page says it
  const said = (tab && (isFresh ? tab.text : tab.old)) || page;
  const words = feed.server && !isFresh ? stateWord() : feed.recorded ? "replay" : "";
  const title = [words, said, (feed.server && feed.server.hostname) || "gpumon"].filter(Boolean).map((part) => part.slice(0, LONGEST)).join(" · ");
  if (page && document.title !== title) { document.title = title; }
}
