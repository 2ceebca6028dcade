// What charts draw with: a canvas, or an object that turns the same calls into SVG.
// @ts-check
import { make } from "./dom.js";
import { theme } from "./theme.js";

const round = (value) => Math.round(value * 100) / 100;
const escaped = (text) => String(text).replace(/[&<>"]/g, (one) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[one]);

// The context of a canvas for a size in CSS pixels, cleared. `ratio`: device pixels for each of them.
export function canvasPen(canvas, width, height, ratio = Math.min(3, window.devicePixelRatio || 1)) {
  const [columns, rows] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== columns || canvas.height !== rows) { canvas.width = columns; canvas.height = rows; }
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

// The mark of an event: a cross for a bad one, a triangle for a warning, a dot for any other. `halo`: a wide edge in the
// color of the card comes first, so that the mark stands out from what lies below it.
export function drawMark(pen, level, x, y, color, halo = false) {
  pen.beginPath();
  if (level === "bad") {
    pen.moveTo(x - 4, y - 4); pen.lineTo(x + 4, y + 4);
    pen.moveTo(x + 4, y - 4); pen.lineTo(x - 4, y + 4);
  } else if (level === "warn") {
    pen.moveTo(x, y - 5); pen.lineTo(x + 5, y + 4); pen.lineTo(x - 5, y + 4); pen.closePath();
  } else { pen.arc(x, y, 3.5, 0, 2 * Math.PI); }
  if (halo) {
    pen.strokeStyle = theme.color("card");
    pen.lineWidth = level === "bad" ? 5 : 3;
    pen.stroke();
  }
  Object.assign(pen, { fillStyle: color, strokeStyle: color, lineWidth: 2 });
  if (level === "bad") { pen.stroke(); } else { pen.fill(); }
}

// The part of a canvas context that charts use, as SVG.
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
    this.parts = [];
    this.path = [];
    this.dash = [];
    this.clips = 0; // clip paths of the file
    this.groups = []; // for each saved state, the groups that were opened in it
    this.ruler = document.createElement("canvas").getContext("2d");
  }
  save() { this.groups.push(0); }
  restore() { this.parts.push("</g>".repeat(this.groups.pop())); }
  beginPath() { this.path = []; }
  moveTo(x, y) { this.path.push(`M${round(x)} ${round(y)}`); }
  lineTo(x, y) { this.path.push(`L${round(x)} ${round(y)}`); }
  closePath() { this.path.push("Z"); }
  rect(x, y, w, h) { this.path.push(`M${round(x)} ${round(y)}h${round(w)}v${round(h)}h${round(-w)}Z`); }
  arc(x, y, r) { this.path.push(`M${round(x - r)} ${round(y)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`); }
  clip() {
    this.clips += 1;
    this.groups[this.groups.length - 1] += 1;
    this.parts.push(`<clipPath id="c${this.clips}"><path d="${this.path.join("")}"/></clipPath><g clip-path="url(#c${this.clips})">`);
  }
  setLineDash(dash) { this.dash = dash; }
  stroke() {
    const dash = this.dash.length ? ` stroke-dasharray="${this.dash.join(" ")}"` : "";
    if (this.path.length) { this.parts.push(`<path d="${this.path.join("")}" fill="none" stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}" stroke-linejoin="round"${dash}/>`); }
  }
  fill() { if (this.path.length) { this.parts.push(`<path d="${this.path.join("")}" fill="${this.fillStyle}"/>`); } }
  fillRect(x, y, w, h) { this.parts.push(`<rect x="${round(x)}" y="${round(y)}" width="${round(Math.max(0, w))}" height="${round(Math.max(0, h))}" fill="${this.fillStyle}"/>`); }
  measureText(text) { this.ruler.font = this.font; return this.ruler.measureText(text); }
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

// Downloads a file.
export function saveFile(name, kind, content) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type: kind }));
  const link = make("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
