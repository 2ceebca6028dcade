// Columns of a table that has not room for all: they leave by a written order, and none is cut at the edge of its card.
// @ts-check
import { attribute } from "./dom.js";

const MOST = 5; // steps of the style sheet's order

const again = [];
// All of them now, not in a frame: a printer takes the page as it is.
export const fitTables = () => { for (const one of again) { one(); } };

// `box` around a table, which has the steps that were taken: `data-less="1 2"`. Returns a function that tries all columns again.
export function fitTable(box) {
  const table = box.firstChild;
  let width = 0;
  let steps = 0;
  let isDue = false;

  function leave(count) {
    steps = count;
    attribute(table, "data-less", Array.from({ length: count }, (_, at) => at + 1).join(" ") || null);
  }

  function fit() {
    isDue = false;
    const room = box.clientWidth;
    if (!room) { return; }
    if (room > width && steps) { leave(0); }
    width = room;
    while (steps < MOST && box.scrollWidth > room) { leave(steps + 1); }
    hint();
  }

  // Whether there are columns behind the edge: a table that ends between two columns looks whole.
  const hint = () => { box.classList.toggle("scrolls", box.scrollLeft + box.clientWidth < box.scrollWidth - 1); };

  // In a frame of its own: a change during ResizeObserver callbacks would be reported again.
  const soon = () => { if (!isDue) { isDue = true; requestAnimationFrame(fit); } };
  const watch = new ResizeObserver(soon);
  watch.observe(box);
  watch.observe(table);
  box.addEventListener("scroll", hint, { passive: true });
  again.push(() => { width = 0; fit(); });
  return () => { width = 0; soon(); };
}
