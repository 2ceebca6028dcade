// Columns of a table that is wider than its card: they are hidden in the order of the style sheet, so that none is cut.
// @ts-check
const STEPS = 5; // of the style sheet
const refits = [];

// Fits all tables at once, and not in the next frame: a printer takes the page as it is.
export const fitTables = () => { for (const refit of refits) { refit(); } };

// Marks a box whose content goes on behind its right edge; returns a function that does so again.
export function watchScroll(box) {
  const update = () => { box.classList.toggle("scrolls", box.scrollLeft + box.clientWidth < box.scrollWidth - 1); };
  box.addEventListener("scroll", update, { passive: true });
  new ResizeObserver(update).observe(box);
  return update;
}

// Hides columns of the table in a box while it does not fit: `data-less="1 2"` names the steps that are taken. Returns a
// function that tries all columns again.
export function fitTable(box) {
  const table = box.firstChild;
  const updateScroll = watchScroll(box);
  let width = 0;
  let steps = 0;
  let isDue = false;

  function setSteps(count) {
    steps = count;
    table.dataset.less = Array.from({ length: count }, (_, at) => at + 1).join(" ");
  }

  function fit() {
    isDue = false;
    const room = box.clientWidth;
    if (!room) { return; }
    if (room > width && steps) { setSteps(0); }
    width = room;
    while (steps < STEPS && box.scrollWidth > room) { setSteps(steps + 1); }
    updateScroll();
  }

  // In a frame of its own, since a change within a callback of ResizeObserver would call it again.
  const fitSoon = () => { if (!isDue) { isDue = true; requestAnimationFrame(fit); } };
  const watch = new ResizeObserver(fitSoon);
  watch.observe(box);
  watch.observe(table);
  refits.push(() => { width = 0; fit(); });
  return () => { width = 0; fitSoon(); };
}
