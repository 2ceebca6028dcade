// Paper: light whatever the screen has, as wide as tables and charts need, all rows that are here, and when it was printed.
// @ts-check
import { feed } from "./feed.js";
import { fitTables } from "./fitting.js";
import * as format from "./format.js";
import { theme } from "./theme.js";

let isOnPaper = false;

// Whether the page is drawn for a printer.
export const isPrinting = () => isOnPaper;

function begin() {
  if (isOnPaper) { return; }
  isOnPaper = true;
  const now = Date.now() / 1000;
  const isOfThen = format.known(feed.now) && (feed.recorded || !feed.isFresh() || !feed.answered);
  const of = isOfThen ? `values of ${format.moment(feed.now)}, ` : "";
  document.body.dataset.printed = `${of}printed ${format.moment(now).slice(0, 16)}, ${Intl.DateTimeFormat().resolvedOptions().timeZone}`;
  document.documentElement.classList.add("printing");
  theme.lend("light");
  fitTables();
}

function end() {
  if (!isOnPaper) { return; }
  isOnPaper = false;
  document.documentElement.classList.remove("printing");
  theme.lend(null);
}

export function startPrinting() {
  window.addEventListener("beforeprint", begin);
  window.addEventListener("afterprint", end);
  const paper = window.matchMedia("print"); // of tools that show how it would be
  paper.addEventListener("change", () => { if (paper.matches) { begin(); } else { end(); } });
  if (paper.matches) { begin(); }
}
