// The pointer over a chart: a line through all panels with the time above it and the value of each line, and a range drawn by
// dragging. Arrow keys do the same, and screen readers read the values.
// @ts-check
import { hide, make, put } from "./dom.js";
import { epochAt } from "./lanes.js";
import { axes, axisScale } from "./scale.js";
import { coveredTime, longestGap, lowerBound, nearestPoint } from "./trace.js";

const LEAST = 8; // px of a range that is drawn, at least
const VALUE = 96; // px of a value next to the line
const BESIDE_EVENT = 5; // px from an event within which its words are shown

// `chart`: {view(), doc(), zoomed(range)}
export function chartPointer(host, chart) {
  const rule = make("div", { class: "rule", hidden: true, "aria-hidden": "true" });
  const pill = make("div", { class: "pill", hidden: true, "aria-hidden": "true" });
  const values = make("div", { class: "values", hidden: true, "aria-hidden": "true" });
  const box = make("div", { class: "drawn", hidden: true, "aria-hidden": "true" });
  const spoken = make("p", { class: "sr", role: "status" });
  let at = null; // the value of the axis at which the line stands
  let dragFrom = null; // px
  let isByKeys = false;
  host.tabIndex = 0;

  const setHidden = (isHidden) => { for (const node of [rule, pill, values]) { hide(node, isHidden); } };

  function leave() {
    at = null;
    isByKeys = false;
    setHidden(true);
    put(spoken, "");
  }

  // The line with the most points.
  const densest = (doc) => doc.panels.flatMap((panel) => panel.lines).reduce((most, line) => (!most || line.x.length > most.x.length ? line : most), null);

  // The sample of that line next to a value of the axis.
  function snap(value) {
    const line = densest(chart.doc());
    if (!line || !line.x.length) { return value; }
    const after = Math.min(line.x.length - 1, lowerBound(line.x, value));
    const before = Math.max(0, after - 1);
    return value - line.x[before] < line.x[after] - value ? line.x[before] : line.x[after];
  }

  // The time, or the times that a mean covers, epochs of the runs, and an event nearby.
  function describe(doc, view) {
    const line = densest(doc);
    const cell = line && coveredTime(doc, line, nearestPoint(line, at, longestGap(line, doc.interval)));
    const [begin, end] = (cell || [at, at]).map(axes[doc.axis].place);
    const day = begin.slice(0, begin.lastIndexOf(" ") + 1); // is not repeated
    const parts = [cell ? `${begin} to ${end.startsWith(day) ? end.slice(day.length) : end}` : begin];
    for (const run of doc.runs) {
      const epoch = epochAt(run, at, cell);
      if (epoch) { parts.push(doc.runs.length > 1 ? `${run.name} ${epoch}` : epoch); }
    }
    const event = doc.events.find((one) => Math.abs(view.x(one.time) - view.x(at)) < BESIDE_EVENT);
    return [...parts, ...(event ? [event.text] : [])].join(" · ");
  }

  // The lines of a panel that have a value there.
  function valuesOf(panel, doc) {
    return panel.lines.filter((line) => line.look !== "thin").flatMap((line) => {
      const point = nearestPoint(line, at, longestGap(line, doc.interval));
      return point < 0 ? [] : [{ line, value: line.mean[point], text: axisScale.write(panel.unit, line.mean[point]) }];
    });
  }

  // The dot and the label of a panel's values.
  function label({ panel, y, top, height }, found, x, view) {
    const node = make("span", { class: "tell" }, ...found.map(({ line, text }) => {
      const part = make("b", { text });
      if (panel.lists) { part.style.color = `var(--${line.role})`; }
      return part;
    }));
    const dot = make("i", { class: "dot" });
    dot.style.left = `${x}px`;
    dot.style.top = `${y(found[0].value)}px`;
    const isLeft = view.right - x < VALUE * (found.length > 1 ? 2 : 1) && x > view.width / 2;
    Object.assign(node.style, {
      top: `${Math.max(top + 8, Math.min(top + height - 8, y(found[0].value)))}px`,
      left: isLeft ? "auto" : `${x + 9}px`,
      right: isLeft ? `${view.width - x + 9}px` : "auto",
      maxWidth: `${(isLeft ? x : view.width - x) - 11}px`, // values of many lines wrap
    });
    return make("span", {}, dot, node);
  }

  function show() {
    const [view, doc] = [chart.view(), chart.doc()];
    if (!view || !doc || at === null || at < view.from || at > view.to) { leave(); return; }
    const x = view.x(at);
    setHidden(false);
    rule.style.left = `${x}px`;
    rule.style.height = `${view.bottom - 4}px`;
    const text = describe(doc, view);
    put(pill, text);
    const half = pill.offsetWidth / 2;
    pill.style.top = view.lanes || view.events !== null ? "1px" : `${view.bottom + 2}px`; // without lanes, below the chart
    pill.style.left = `${Math.max(half + 2, Math.min(view.width - half - 2, x))}px`;
    const shown = view.panels.map((one) => [one, valuesOf(one.panel, doc)]).filter(([, found]) => found.length);
    values.replaceChildren(...shown.map(([one, found]) => label(one, found, x, view)));
    const words = shown.flatMap(([{ panel }, found]) => found.map((value) => `${panel.title}${value.line.label ? ` ${value.line.label}` : ""} ${value.text}`));
    if (isByKeys) { put(spoken, `${text}: ${words.join(", ")}`); }
  }

  const local = (event) => event.clientX - host.getBoundingClientRect().left;
  const isInside = (x) => { const view = chart.view(); return Boolean(view) && x >= view.left - 2 && x <= view.right + 2; };
  // The ends of the range that is dragged, in px.
  const dragged = (x) => {
    const { left, right } = chart.view();
    return [dragFrom, x].sort((a, b) => a - b).map((end) => Math.max(left, Math.min(right, end)));
  };

  function drawRange(x) {
    const view = chart.view();
    if (!view) { return; }
    const [a, b] = dragged(x);
    hide(box, b - a < LEAST);
    Object.assign(box.style, { left: `${a}px`, width: `${b - a}px`, top: `${view.body}px`, height: `${view.bottom - view.body}px` });
    setHidden(true);
  }

  host.addEventListener("pointermove", (event) => {
    const x = local(event);
    if (dragFrom !== null) { drawRange(x); return; }
    if (!isInside(x)) { if (!isByKeys) { leave(); } return; }
    isByKeys = false;
    at = snap(chart.view().value(x));
    show();
  });
  host.addEventListener("pointerleave", () => { if (dragFrom === null && !isByKeys) { leave(); } });
  host.addEventListener("blur", leave);
  host.addEventListener("pointerdown", (event) => {
    const x = local(event);
    if (event.button !== 0 || event.pointerType === "touch" || !isInside(x)) { return; }
    dragFrom = x;
    host.setPointerCapture(event.pointerId);
    event.preventDefault();
    host.focus({ preventScroll: true });
  });
  host.addEventListener("pointerup", (event) => {
    if (dragFrom === null) { return; }
    const isRange = Math.abs(local(event) - dragFrom) >= LEAST;
    const ends = dragged(local(event)).map(chart.view().value);
    dragFrom = null;
    hide(box, true);
    if (isRange) { leave(); chart.zoomed(ends); }
  });
  host.addEventListener("pointercancel", () => { dragFrom = null; hide(box, true); });
  host.addEventListener("dblclick", () => chart.zoomed(null));

  // Left and right arrows move by a sample, with Shift by an epoch.
  host.addEventListener("keydown", (press) => {
    const [view, doc] = [chart.view(), chart.doc()];
    if (!view || !doc) { return; }
    if (press.key === "Escape") { leave(); return; }
    const step = { ArrowLeft: -1, ArrowRight: 1 }[press.key];
    const line = densest(doc);
    if (!step || !line || !line.x.length) { return; }
    press.preventDefault();
    isByKeys = true;
    if (at === null) {
      at = snap(step < 0 ? view.to : view.from);
    } else if (press.shiftKey) {
      const begins = doc.runs.flatMap((run) => run.bands.map(([begin]) => begin)).sort((a, b) => a - b);
      at = (step > 0 ? begins.find((begin) => begin > at) : begins.findLast((begin) => begin < at - (doc.interval || 0))) ?? at;
    } else {
      at = line.x[Math.max(0, Math.min(line.x.length - 1, lowerBound(line.x, at) + step))];
    }
    at = Math.max(view.from, Math.min(view.to, at));
    show();
  });

  return { nodes: [rule, values, box, pill, spoken], hide: leave, update: () => { if (at !== null) { show(); } } };
}
