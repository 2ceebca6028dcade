// Strips: who held GPUs in each slot of time, on a canvas. A user's color as a tint means held and solid means used, a hatch
// means that nothing was sampled, and an empty place means free. What is still to come lies behind a line, under a veil.
// @ts-check
import { make } from "./dom.js";
import { feed } from "./feed.js";
import { chartFont } from "./lanes.js";
import { canvasPen, drawMark, hatchArea } from "./pen.js";
import { theme } from "./theme.js";

const HELD = 0.26; // opacity of what was held
const CROWN = 1.5; // px of the line at the top of a tint, which would be too faint on white without it
const NAME_MARGIN = 14; // px beside a name
const BAR_GAP = 2; // px between bars
const NAMED = 0.6; // share of the height from which on a block has room for a name
const VEIL = 0.07; // opacity of what is still to come
const LEAST_HATCH = 0.12; // share of the height
const SEVERITY = { bad: 2, warn: 1, mut: 0 };

// A strip: {slots, shift, parts, unseen, until, ends_now, is_bars, is_mean, label, marks, events}. `parts` are [slot, user,
// held, used or null] and `unseen` are [slot, share, begin or nothing], in hundredths of a slot. `until` is the share of all slots
// that is not still to come; a strip that `ends_now` has nothing behind that.
export function holderStrip(one) {
  const canvas = make("canvas", { class: one.is_bars ? "strip bars" : "strip", role: "img", "aria-label": one.label, title: one.label });
  queueMicrotask(() => draw(canvas, one));
  return canvas;
}

// The last day of a GPU, or the mean of several GPUs.
export function dayStrip(uuids) {
  const strips = uuids.map((uuid) => (feed.value("day") || {})[uuid]).filter(Boolean);
  if (!strips.length) { return []; }
  return [holderStrip(strips.length === 1 ? strips[0] : meanStrip(strips))];
}

function meanStrip(strips) {
  const count = strips.length;
  const sums = new Map();
  const unseen = new Map();
  for (const strip of strips) {
    for (const [slot, user, held, used] of strip.parts) {
      const key = JSON.stringify([slot, user]);
      const sum = sums.get(key) || { slot, user, held: 0, used: 0 };
      sums.set(key, { ...sum, held: sum.held + held / count, used: used === null || sum.used === null ? null : sum.used + used / count });
    }
    for (const [slot, share, ...begin] of strip.unseen) {
      const key = JSON.stringify([slot, ...begin]); // an outage of the daemon is the same on all GPUs
      const sum = unseen.get(key) || { slot, share: 0, begin };
      unseen.set(key, { ...sum, share: sum.share + share / count });
    }
  }
  return {
    ...strips[0], is_mean: true, label: strips.map((one) => one.label).join("; "),
    parts: [...sums.values()].sort((a, b) => a.slot - b.slot).map((sum) => [sum.slot, sum.user, sum.held, sum.used]),
    unseen: [...unseen.values()].map(({ slot, share, begin }) => [slot, share, ...begin]),
  };
}

function draw(canvas, one) {
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!width || !height) { return; }
  const pen = canvasPen(canvas, width, height);
  const shown = one.slots * (one.ends_now ? one.until : 1); // slots in the width
  const edge = (slot) => Math.round(((slot + (one.shift || 0)) / shown) * width);
  const now = Math.round(((one.slots * one.until) / shown) * width);
  drawGround(pen, one, { width, height, now });
  const hatches = hatchesOf(one, edge, now);
  for (const { left, right, share, holes, level } of hatches.values()) {
    for (const hole of holes || [{ left, right, share }]) { drawHatch(pen, hole, level ? height * level : height); }
  }
  const block = blockPen(pen, [...hatches.values()].flatMap((hatch) => hatch.holes || []));
  const slots = bySlot(one.parts);
  slots.forEach((slot, at) => {
    const [from, to] = [edge(slot.slot), edge(slot.slot + 1)];
    if (one.is_bars) {
      const gap = width / one.slots > 3 * BAR_GAP ? BAR_GAP : 0;
      for (const [user, held, used] of slot.users) { block(user, from, height - (held / 100) * height, to - from - gap, (held / 100) * height, shareUsed(held, used)); }
      return;
    }
    const hatch = hatches.get(slot.slot) || {};
    const [first, last] = sampledPart(hatch, from, Math.max(from, Math.min(to, now)));
    const hidden = (hatch.holes || []).reduce((sum, hole) => sum + hole.right - hole.left, 0);
    const room = last - first - hidden;
    const shareOf = (held) => (room > 0 ? Math.min(1, ((held / 100) * (to - from)) / room) : Math.min(1, held / 100)); // of what was sampled
    const area = { first, last, room, hidden, height, isLevel: Boolean(hatch.level) };
    if (one.is_mean) { drawMean(slots, at, area, shareOf, block); } else { drawHolders(slots, at, area, shareOf, block); }
  });
  if (one.events) {
    for (const [share, level] of [...one.events].sort((a, b) => SEVERITY[a[1]] - SEVERITY[b[1]])) {
      drawMark(pen, level, Math.max(5, Math.min(width - 5, share * width)), height / 2, theme.color(level), true);
    }
  } else if (!one.is_bars && !one.is_mean) { drawNames(pen, slots, height); }
}

// Lines at round times, the base line of bars, and the veil over what is still to come.
function drawGround(pen, one, { width, height, now }) {
  pen.fillStyle = theme.color("line");
  for (const mark of one.marks || []) { pen.fillRect(Math.round(mark * width), 0, 1, height); }
  if (one.is_bars) { pen.fillRect(0, height - 1, width, 1); }
  if (!one.is_bars && now < width) {
    pen.fillStyle = theme.color("mut", VEIL);
    pen.fillRect(now, 0, width - now, height);
    pen.fillStyle = theme.color("mut");
    pen.fillRect(now, 0, 1, height);
  }
}

// A function that draws what a user held and used, with gaps at the outages.
function blockPen(pen, outages) {
  const isOld = !feed.isFresh();
  const color = (user, opacity) => theme.color(isOld ? "mut" : theme.ofUser(user), opacity);
  const whole = (user, left, top, width, height, used) => {
    pen.fillStyle = color(user, HELD);
    pen.fillRect(left, top, width, height);
    pen.fillStyle = color(user, 1);
    if (used !== null) { pen.fillRect(left, top + height * (1 - used), width, height * used); }
    pen.fillRect(left, top, width, Math.min(CROWN, height));
  };
  return function block(user, left, top, width, height, used) {
    const hole = outages.find((outage) => outage.left < left + width && outage.right > left);
    if (!hole) { whole(user, left, top, width, height, used); return; }
    if (hole.left > left) { whole(user, left, top, hole.left - left, height, used); }
    if (hole.right < left + width) { block(user, hole.right, top, left + width - hole.right, height, used); }
  };
}

const shareUsed = (held, used) => (used === null ? null : Math.min(1, used / held));

// The part of a slot from `from` to `to` that lies beside its hatch.
function sampledPart({ left, right, holes, level }, from, to) {
  if (left === undefined || holes || level) { return [from, to]; }
  return left > from || right >= to ? [from, Math.min(left, to)] : [right, to];
}

// A slot of several GPUs: each user has a share of the height, from below. If the slot continues the one before it or the one
// after it, but not both, a smaller share than the neighbor's is drawn as a part of the width, at that side.
function drawMean(slots, at, { first, last, room, hidden, height, isLevel }, shareOf, block) {
  const isAfter = !isLevel && continues(slots[at - 1], slots[at]);
  const isBefore = !isLevel && continues(slots[at], slots[at + 1]);
  let base = height;
  for (const [user, held, used] of slots[at].users) {
    const neighbor = isAfter === isBefore ? 0 : heldBy(slots[isAfter ? at - 1 : at + 1], user) / 100;
    const level = Math.max(shareOf(held), neighbor);
    const width = hidden ? last - first : (room * shareOf(held)) / level;
    base -= height * level;
    block(user, isAfter ? first : last - width, base, width, height * level, shareUsed(held, used));
  }
}

// A slot of one GPU: users who share it have a lane each, the first one at the top. If the slot continues exactly one of its
// neighbors, the part that was held is at that side; otherwise its time is unknown, and its height tells how long it was.
function drawHolders(slots, at, { first, last, room, hidden, height, isLevel }, shareOf, block) {
  const { users } = slots[at];
  const sum = users.reduce((total, [, held]) => total + held, 0);
  const isAfter = continues(slots[at - 1], slots[at]);
  const isBefore = continues(slots[at], slots[at + 1]);
  const isPlaced = !hidden && !isLevel && isAfter !== isBefore;
  const width = isPlaced ? room * shareOf(sum) : room + hidden;
  const tall = isPlaced ? height : height * shareOf(sum);
  const left = isLevel || isAfter || !isBefore ? first : last - width;
  Object.assign(slots[at], { isLow: tall < height * NAMED, left, right: left + width });
  let top = height - tall;
  for (const [user, held, used] of users) {
    const lane = (tall * held) / sum;
    block(user, left, top, width, lane, shareUsed(held, used));
    top += lane;
  }
}

// Whether a user of a slot also held the next one.
const continues = (slot, next) => Boolean(slot && next) && slot.slot + 1 === next.slot && slot.users.some(([user]) => next.users.some(([other]) => other === user));

const heldBy = ({ users }, user) => (users.find(([other]) => other === user) || [user, 0])[1];

// The hatch of each slot in which something was not sampled. If the times of its outages are known, it has `holes` there. Or
// else it lies beside a neighbor that was not sampled either. Or else its time is unknown: it is as wide as the slot, and has
// a `level`, the share of the height that tells how long it was.
function hatchesOf(one, edge, now) {
  const hatches = new Map();
  for (const [slot, share, begin] of one.unseen.filter((part) => part[2] !== undefined)) {
    const width = edge(slot + 1) - edge(slot);
    const left = Math.round(edge(slot) + (width * begin) / 100);
    const hole = { left, right: Math.min(now, Math.max(left + 1, Math.round(left + (width * share) / 100))), share };
    const holes = [...(hatches.get(slot)?.holes || []), hole];
    hatches.set(slot, { left: Math.min(...holes.map((each) => each.left)), right: Math.max(...holes.map((each) => each.right)), holes });
  }
  const slots = new Set(one.unseen.map(([slot]) => slot));
  for (const [slot, share] of one.unseen) {
    if (hatches.get(slot)?.holes) { continue; }
    const [from, to] = [edge(slot), Math.min(edge(slot + 1), now)];
    const width = (edge(slot + 1) - from) * Math.min(1, share / 100);
    if (slots.has(slot - 1) === slots.has(slot + 1) && width < to - from) {
      hatches.set(slot, { left: from, right: to, share, level: Math.max(LEAST_HATCH, width / (to - from)) });
    } else {
      const left = slots.has(slot - 1) ? from : Math.max(from, to - width);
      hatches.set(slot, { left, right: Math.min(left + width, to), share });
    }
  }
  return hatches;
}

// The users of each slot: [{slot, users: [[user, held, used]]}].
function bySlot(parts) {
  const slots = [];
  for (const [slot, ...part] of parts) {
    const last = slots[slots.length - 1];
    if (last && last.slot === slot) { last.users.push(part); } else { slots.push({ slot, users: [part] }); }
  }
  return slots;
}

function drawHatch(pen, { left, right, share }, height) {
  hatchArea(pen, { left, right: Math.max(left + 1.5, right), top: 0, height }, 5, theme.color("mut", share > 50 ? 0.75 : 0.45));
}

// The name of a user who held the GPU alone, if there is room for it in the blocks that touch each other.
function drawNames(pen, slots, height) {
  pen.font = chartFont(11.5, 600);
  pen.textBaseline = "middle";
  let run = null; // blocks of one user: {user, left, right, to}
  const write = () => {
    if (!run || !run.user) { return; }
    const width = pen.measureText(run.user).width;
    if (width + NAME_MARGIN > run.right - run.left) { return; }
    pen.fillStyle = theme.color("card", 0.72);
    pen.beginPath();
    pen.roundRect(run.left + 3, height / 2 - 9, width + 10, 18, 4);
    pen.fill();
    pen.fillStyle = theme.color("ink");
    pen.fillText(run.user, run.left + 8, height / 2 + 0.5);
  };
  for (const { slot, users, isLow, left, right } of slots) {
    const user = users.length === 1 && !isLow ? users[0][0] : "";
    if (run && run.user === user && run.to === slot) {
      Object.assign(run, { to: slot + 1, right });
    } else {
      write();
      run = { user, left: Math.max(0, left), right, to: slot + 1 };
    }
  }
  write();
}
