// A pointer over a chart: one line through all panels with a pill above it and the value of each line; a window drawn by dragging;
// and the same by keys, read by screen readers as one sentence.
// @ts-check
import { hide, make, put } from "./dom.js";
import { epochAt } from "./lanes.js";
import { axes, axisScale } from "./scale.js";
import { coveredTime, longestGap, lowerBound, nearestPoint } from "./trace.js";

const LEAST = 8; // px of the narrowest window that can be drawn
const BESIDE = 96; // px that a value needs at the right of the line

// `chart`: {view(), doc(), zoomed(range)}
export function chartPointer(host, chart) {
  const rule = make("div", { class: "rule", hidden: true, "aria-hidden": "true" });
  const pill = make("div", { class: "pill", hidden: true, "aria-hidden": "true" });
  const values = make("div", { class: "values", hidden: true, "aria-hidden": "true" });
  const box = make("div", { class: "drawn", hidden: true, "aria-hidden": "true" });
  const said = make("p", { class: "sr", role: "status" });
  let at = null; // where the line is, on the axis
  let begun = null; // px at which a drag began
  let isByKeys = false;
  host.tabIndex = 0;

  function leave() {
    at = null;
    isByKeys = false;
    for (const node of [rule, pill, values]) { hide(node, true); }
    if (said.textContent) { said.textContent = ""; }
  }

  // The sample next to a value of the axis, of the line with the most of them.
  function snapped(value) {
    const doc = chart.doc();
    const line = longestOf(doc);
    if (!line || !line.x.length) { return value; }
    const after = Math.min(line.x.length - 1, lowerBound(line.x, value));
    const before = Math.max(0, after - 1);
    return value - line.x[before] < line.x[after] - value ? line.x[before] : line.x[after];
  }

  const longestOf = (doc) => doc.panels.flatMap((panel) => panel.lines).reduce((most, line) => (!most || line.x.length > most.x.length ? line : most), null);

  function words() {
    const doc = chart.doc();
    const line = longestOf(doc);
    const cell = line && coveredTime(doc, line, nearestPoint(line, at, longestGap(line, doc.interval)));
    const [begin, end] = (cell || [at, at]).map(axes[doc.axis].place);
    const day = begin.slice(0, begin.lastIndexOf(" ") + 1); // once if both are on it
    const parts = [cell ? `${begin} to ${end.startsWith(day) ? end.slice(day.length) : end}` : begin];
    for (const run of doc.runs) {
      const epoch = epochAt(run, at, cell);
      if (epoch) { parts.push(doc.runs.length > 1 ? `${run.name} ${epoch}` : epoch); }
    }
    const event = doc.events.find((one) => Math.abs(chart.view().x(one.time) - chart.view().x(at)) < 5);
    return [...parts, ...(event ? [event.text] : [])].join(" · ");
  }

  function show() {
    const view = chart.view();
    const doc = chart.doc();
    if (!view || !doc || at === null || at < view.from || at > view.to) { leave(); return; }
    const x = view.x(at);
    for (const node of [rule, pill, values]) { hide(node, false); }
    rule.style.left = `${x}px`;
    rule.style.height = `${view.bottom - 4}px`;
    const text = words();
    put(pill, text);
    const half = pill.offsetWidth / 2;
    // Above the panels there are epochs and events, or nothing: then it stands on the times below.
    pill.style.top = view.lanes || view.events ? "1px" : `${view.bottom + 2}px`;
    pill.style.left = `${Math.max(half + 2, Math.min(view.width - half - 2, x))}px`;
    const spoken = [];
    const labels = view.panels.map((one) => {
      const found = one.panel.lines.map((line) => {
        const point = nearestPoint(line, at, longestGap(line, doc.interval));
        return point < 0 ? null : { line, value: line.mean[point] };
      }).filter((known) => known && known.line.look !== "thin");
      if (!found.length) { return null; }
      const label = make("span", { class: "tell" }, ...found.map(({ line, value }) => {
        const part = make("b", { text: axisScale.write(one.panel.unit, value) });
        if (one.panel.lists) { part.style.color = `var(--${line.role})`; }
        spoken.push(`${one.panel.title}${line.label ? ` ${line.label}` : ""} ${axisScale.write(one.panel.unit, value)}`);
        return part;
      }));
      const dot = make("i", { class: "dot" });
      const y = one.y(found[0].value);
      dot.style.left = `${x}px`;
      dot.style.top = `${y}px`;
      label.style.top = `${Math.max(one.top + 8, Math.min(one.top + one.height - 8, y))}px`;
      const isLeft = view.right - x < BESIDE * (found.length > 1 ? 2 : 1) && x > view.width / 2;
      label.style.left = isLeft ? "auto" : `${x + 9}px`;
      label.style.right = isLeft ? `${view.width - x + 9}px` : "auto";
      label.style.maxWidth = `${(isLeft ? x : view.width - x) - 11}px`; // of many lines, values stand in several rows there
      const wrap = make("span", {}, dot, label);
      return wrap;
    }).filter(Boolean);
    values.replaceChildren(...labels);
    if (isByKeys) { put(said, `${text}: ${spoken.join(", ")}`); }
  }

  const local = (event) => event.clientX - host.getBoundingClientRect().left;
  const inside = (x) => { const view = chart.view(); return Boolean(view) && x >= view.left - 2 && x <= view.right + 2; };

  host.addEventListener("pointermove", (event) => {
    const x = local(event);
    if (begun !== null) { select(x); return; }
    if (!inside(x)) { if (!isByKeys) { leave(); } return; }
    isByKeys = false;
    at = snapped(chart.view().value(x));
    show();
  });
  host.addEventListener("pointerleave", () => { if (begun === null && !isByKeys) { leave(); } });
  host.addEventListener("blur", leave);
  host.addEventListener("pointerdown", (event) => {
    const x = local(event);
    if (event.button !== 0 || event.pointerType === "touch" || !inside(x)) { return; }
    begun = x;
    host.setPointerCapture(event.pointerId);
    event.preventDefault();
    host.focus({ preventScroll: true });
  });
  host.addEventListener("pointerup", (event) => {
    if (begun === null) { return; }
    const view = chart.view();
    const ends = [begun, local(event)].sort((a, b) => a - b).map((x) => view.value(Math.max(view.left, Math.min(view.right, x))));
    const wide = Math.abs(local(event) - begun);
    begun = null;
    hide(box, true);
    if (wide >= LEAST) { leave(); chart.zoomed(ends); }
  });
  host.addEventListener("pointercancel", () => { begun = null; hide(box, true); });
  host.addEventListener("dblclick", () => chart.zoomed(null));

  function select(x) {
    const view = chart.view();
    if (!view) { return; }
    const [a, b] = [begun, x].sort((one, other) => one - other).map((one) => Math.max(view.left, Math.min(view.right, one)));
    hide(box, b - a < LEAST);
    Object.assign(box.style, { left: `${a}px`, width: `${b - a}px`, top: `${view.body}px`, height: `${view.bottom - view.body}px` });
    for (const node of [rule, pill, values]) { hide(node, true); }
  }

  host.addEventListener("keydown", (press) => {
    const view = chart.view();
    const doc = chart.doc();
    if (!view || !doc) { return; }
    if (press.key === "Escape") { leave(); return; }
    const way = { ArrowLeft: -1, ArrowRight: 1 }[press.key];
    const line = longestOf(doc);
    if (!way || !line || !line.x.length) { return; }
    press.preventDefault();
    isByKeys = true;
    if (at === null) { at = snapped(way < 0 ? view.to : view.from); show(); return; }
    if (press.shiftKey) {
      const begins = doc.runs.flatMap((run) => run.bands.map(([begin]) => begin)).sort((a, b) => a - b);
      const next = way > 0 ? begins.find((one) => one > at) : begins.filter((one) => one < at - (doc.interval || 0)).pop();
      if (next !== undefined) { at = next; }
    } else {
      const point = lowerBound(line.x, at);
      at = line.x[Math.max(0, Math.min(line.x.length - 1, point + way))];
    }
    at = Math.max(view.from, Math.min(view.to, at));
    show();
  });

  return { nodes: [rule, values, box, pill, said], hide: leave, moved: () => { if (at !== null) { show(); } } };
}
