// What charts draw with: a canvas on the page, or the same strokes as the text of an SVG file.
// @ts-check
import { attribute, hide, make, put } from "./dom.js";

const round = (value) => Math.round(value * 100) / 100;
const escaped = (text) => String(text).replace(/[&<>"]/g, (one) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[one]);

// A canvas of the size of `place`, sharp on any screen.
export function canvasPen(canvas, width, height, ratio) {
  const wide = Math.round(width * ratio);
  const high = Math.round(height * ratio);
  if (canvas.width !== wide || canvas.height !== high) { canvas.width = wide; canvas.height = high; }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

// Diagonal lines over an area from `left` to `right`, `step` px apart.
export function hatchArea(pen, { left, right, top, height }, step, color) {
  pen.save();
  pen.beginPath();
  pen.rect(left, top, right - left, height);
  pen.clip();
  pen.strokeStyle = color;
  pen.lineWidth = 1;
  pen.beginPath();
  for (let x = left - height - (left % step); x < right; x += step) { pen.moveTo(x, top + height); pen.lineTo(x + height, top); }
  pen.stroke();
  pen.restore();
}

// The part of a canvas' interface that charts use, kept as SVG.
export class SvgPen {
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.fillStyle = "#000";
    this.strokeStyle = "#000";
    this.lineWidth = 1;
    this.font = "12px sans-serif";
    this.textAlign = "left";
    this.textBaseline = "alphabetic";
    this.globalAlpha = 1;
    this.parts = [];
    this.path = [];
    this.dash = [];
    this.clips = 0;
    this.states = [];
    this.rulers = document.createElement("canvas").getContext("2d");
  }
  save() { this.states.push([this.parts.length, this.clips, this.opened || 0]); this.opened = 0; }
  restore() {
    const [, , opened] = this.states.pop() || [0, 0, 0];
    for (let at = 0; at < this.opened; at += 1) { this.parts.push("</g>"); }
    this.opened = opened;
  }
  beginPath() { this.path = []; }
  moveTo(x, y) { this.path.push(`M${round(x)} ${round(y)}`); }
  lineTo(x, y) { this.path.push(`L${round(x)} ${round(y)}`); }
  closePath() { this.path.push("Z"); }
  rect(x, y, w, h) { this.path.push(`M${round(x)} ${round(y)}h${round(w)}v${round(h)}h${round(-w)}Z`); }
  roundRect(x, y, w, h) { this.rect(x, y, w, h); }
  arc(x, y, r) { this.path.push(`M${round(x - r)} ${round(y)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`); }
  clip() {
    this.clips += 1;
    this.parts.push(`<clipPath id="c${this.clips}"><path d="${this.path.join("")}"/></clipPath><g clip-path="url(#c${this.clips})">`);
    this.opened = (this.opened || 0) + 1;
  }
  setLineDash(dash) { this.dash = dash; }
  stroke() {
    const dash = this.dash.length ? ` stroke-dasharray="${this.dash.join(" ")}"` : "";
    if (this.path.length) { this.parts.push(`<path d="${this.path.join("")}" fill="none" stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}" stroke-linejoin="round"${dash}/>`); }
  }
  fill() { if (this.path.length) { this.parts.push(`<path d="${this.path.join("")}" fill="${this.fillStyle}"/>`); } }
  fillRect(x, y, w, h) { this.parts.push(`<rect x="${round(x)}" y="${round(y)}" width="${round(Math.max(0, w))}" height="${round(Math.max(0, h))}" fill="${this.fillStyle}"/>`); }
  measureText(text) { this.rulers.font = this.font; return this.rulers.measureText(text); }
  fillText(text, x, y) {
    const [, weight, size, family] = /^(\d+ )?([\d.]+)px (.*)$/.exec(this.font) || ["", "", 12, "sans-serif"];
    const anchor = { left: "start", right: "end", center: "middle" }[this.textAlign] || "start";
    const down = this.textBaseline === "middle" ? Number(size) * 0.35 : this.textBaseline === "top" ? Number(size) * 0.85 : 0;
    this.parts.push(`<text x="${round(x)}" y="${round(y + down)}" fill="${this.fillStyle}" font-family="${escaped(family)}" font-size="${size}" font-weight="${(weight || "400").trim()}" text-anchor="${anchor}">${escaped(text)}</text>`);
  }
  get text() {
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${this.width}" height="${this.height}" viewBox="0 0 ${this.width} ${this.height}">${this.parts.join("")}</svg>\n`;
  }
}

// A file for the viewer's disk.
export function saveFile(name, kind, content) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type: kind }));
  const link = make("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

// A button with what it opens below it: closed by Esc, by a click beside it, and by leaving it with the keyboard.
export function menuButton(className, ...content) {
  const words = make("span");
  const box = make("div", { class: "menu", hidden: true, role: "group" }, ...content);
  const button = make("button", { type: "button", class: "button", "aria-expanded": "false" }, words, make("span", { text: " ▾", "aria-hidden": "true" }));
  const whole = make("span", { class: `opens ${className}` }, button, box);
  const open = (is) => { hide(box, !is); attribute(button, "aria-expanded", String(is)); };
  button.addEventListener("click", () => open(box.hidden));
  whole.addEventListener("keydown", (press) => { if (press.key === "Escape" && !box.hidden) { open(false); button.focus(); press.stopPropagation(); } });
  whole.addEventListener("focusout", (left) => { if (left.relatedTarget && !whole.contains(left.relatedTarget)) { open(false); } });
  window.addEventListener("pointerdown", (press) => { if (!whole.contains(press.target)) { open(false); } }, true);
  return { node: whole, box, close: () => open(false), put: (text) => put(words, text) };
}
