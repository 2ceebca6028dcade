// Printing: the light theme, tables as wide as the paper, all rows that the page has, and the time of printing.
// @ts-check
import { feed } from "./feed.js";
import { fitTables } from "./fitting.js";
import * as format from "./format.js";
import { theme } from "./theme.js";

let isActive = false;

// Whether the page is drawn for a printer.
export const isPrinting = () => isActive;

function begin() {
  if (isActive) { return; }
  isActive = true;
  const isOld = format.known(feed.now) && (feed.recorded || !feed.isFresh() || !feed.answered);
  const values = isOld ? `values of ${format.moment(feed.now)}, ` : "";
  document.body.dataset.printed = `${values}printed ${format.moment(Date.now() / 1000).slice(0, 16)}, ${Intl.DateTimeFormat().resolvedOptions().timeZone}`;
  document.documentElement.classList.add("printing");
  theme.override("light");
  fitTables();
}

function end() {
  if (!isActive) { return; }
  isActive = false;
  document.documentElement.classList.remove("printing");
  theme.override(null);
}

export function startPrinting() {
  window.addEventListener("beforeprint", begin);
  window.addEventListener("afterprint", end);
  const paper = window.matchMedia("print"); // set by developer tools that emulate paper
  paper.addEventListener("change", () => { if (paper.matches) { begin(); } else { end(); } });
  if (paper.matches) { begin(); }
}
