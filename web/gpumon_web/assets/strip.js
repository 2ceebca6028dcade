// Who held something when, slot by slot, on a canvas: a person's color as a tint says held, solid says used, a hatch says
// not seen, and nothing says free. A veil behind a line lies on what is still to come.
// @ts-check
import { make } from "./dom.js";
import { feed } from "./feed.js";
import { canvasPen, hatchArea } from "./pen.js";
import { theme } from "./theme.js";

const HELD = 0.26;
const CROWN = 1.5; // px of a line that closes a tint at its top, so that it reads on white too
const ROOM = 14; // px beside a name within its strip
const GAP = 2; // px between bars
const NAMED = 0.6; // of the height, from which on a block has room for a name
const TO_COME = 0.07;
const LOW = 0.12; // of the height, so that a hatch is seen

// `one`: {slots, shift, parts: [[slot, user, held, used or null]], unseen: [[slot, share, begin or nothing]], until, is_bars, label, marks, events}; shares in
// hundredths of a slot, `until` the share of all slots that is not still to come; one that `ends_now` has nothing behind that.
export function holderStrip(one) {
  const canvas = make("canvas", { class: one.is_bars ? "strip bars" : "strip", role: "img", "aria-label": one.label, title: one.label });
  queueMicrotask(() => draw(canvas, one));
  return canvas;
}

function draw(canvas, one) {
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!width || !height) { return; }
  const pen = canvasPen(canvas, width, height, window.devicePixelRatio || 1);
  const isOld = !feed.isFresh();
  const color = (user, opacity) => theme.color(isOld || !user ? "mut" : theme.ofUser(user), opacity);
  const all = one.slots * (one.ends_now ? one.until : 1);
  const shift = one.shift || 0; // slots between the begin and slot 0, where windows begin within an hour
  const edge = (slot) => Math.round(((slot + shift) / all) * width); // the current slot ends behind the canvas
  const now = Math.round(((one.slots * one.until) / all) * width);
  pen.fillStyle = theme.color("line");
  for (const mark of one.marks || []) { pen.fillRect(Math.round(mark * width), 0, 1, height); }
  if (one.is_bars) { pen.fillRect(0, height - 1, width, 1); }
  if (!one.is_bars && now < width) {
    pen.fillStyle = theme.color("mut", TO_COME);
    pen.fillRect(now, 0, width - now, height);
    pen.fillStyle = theme.color("mut");
    pen.fillRect(now, 0, 1, height);
  }
  const away = unseen(one, edge, now);
  for (const { left, right, share, holes, level } of away.values()) {
    for (const hole of holes || [{ left, right, share }]) { hatch(pen, hole.left, hole.right, level ? height * level : height, hole.share); }
  }
  // What was seen of a slot lies beside its hatch, before what is still to come: on both sides of one that is within it.
  const seen = (slot) => {
    const [from, to] = [edge(slot), Math.max(edge(slot), Math.min(edge(slot + 1), now))];
    const { left, right, holes, level } = away.get(slot) || { left: to, right: to };
    if (holes || level) { return [from, to]; }
    return left > from || right >= to ? [from, Math.min(left, to)] : [right, to];
  };
  const outages = [...away.values()].flatMap((slot) => slot.holes || []);
  const block = (user, left, top, wide, tall, used) => {
    const hole = outages.find((outage) => outage.left < left + wide && outage.right > left);
    if (!hole) { whole(user, left, top, wide, tall, used); return; }
    if (hole.left > left) { whole(user, left, top, hole.left - left, tall, used); }
    if (hole.right < left + wide) { block(user, hole.right, top, left + wide - hole.right, tall, used); }
  };
  const whole = (user, left, top, wide, tall, used) => {
    pen.fillStyle = color(user, HELD);
    pen.fillRect(left, top, wide, tall);
    pen.fillStyle = color(user);
    if (used !== null) { pen.fillRect(left, top + tall * (1 - used), wide, tall * used); }
    pen.fillRect(left, top, wide, Math.min(CROWN, tall));
  };
  const slots = together(one.parts);
  slots.forEach(({ slot, users }, at) => {
    const [from, to] = [edge(slot), edge(slot + 1)];
    if (one.is_bars) { bars(slots[at], from, to, width / one.slots > 3 * GAP ? GAP : 0, height, block); return; }
    const [first, last] = seen(slot);
    const isLevel = Boolean((away.get(slot) || {}).level);
    const within = ((away.get(slot) || {}).holes || []).reduce((sum, hole) => sum + hole.right - hole.left, 0);
    const room = last - first - within;
    const share = (held) => (room > 0 ? Math.min(1, ((held / 100) * (to - from)) / room) : Math.min(1, held / 100)); // of what was seen
    if (one.is_mean) { // of several: each user's share of the height, from below; at a begin or an end of the width
      const [before, after] = isLevel ? [false, false] : [touches(slots[at - 1], slots[at]), touches(slots[at], slots[at + 1])];
      const level = (user, held) => Math.max(share(held), before === after ? 0 : heldIn(slots[before ? at - 1 : at + 1], user) / 100);
      let base = height;
      for (const [user, held, used] of users) {
        const tall = height * level(user, held);
        const wide = within ? last - first : (room * share(held)) / level(user, held);
        base -= tall;
        block(user, before ? first : last - wide, base, wide, tall, used === null ? null : Math.min(1, used / held));
      }
      return;
    }
    const sum = users.reduce((found, [, held]) => found + held, 0);
    // A part of what was seen is next to the slot that it continues; else its place is unknown, and its height says how much.
    const isPlaced = !within && !isLevel && touches(slots[at - 1], slots[at]) !== touches(slots[at], slots[at + 1]);
    const wide = isPlaced ? room * share(sum) : room + within;
    const tall = isPlaced ? height : height * share(sum);
    const left = isLevel ? first : leftOf(slots, at, first, last, wide);
    // Who shares it has a lane of it, the first at the top.
    Object.assign(slots[at], { isLow: tall < height * NAMED, left, right: left + wide });
    let top = height - tall;
    for (const [user, held, used] of users) {
      const lane = (tall * held) / sum;
      block(user, left, top, wide, lane, used === null ? null : Math.min(1, used / held));
      top += lane;
    }
  });
  if (one.events) { marks(pen, one.events, width, height); } else if (!one.is_bars && !one.is_mean) { names(pen, slots, height); }
}

// Events, each at its share of the width: a cross is bad, a triangle a warning, a dot news; the worst on top.
const WORST = { bad: 2, warn: 1, mut: 0 };
function marks(pen, events, width, height) {
  const y = height / 2;
  for (const [share, level] of [...events].sort((a, b) => WORST[a[1]] - WORST[b[1]])) {
    const x = Math.max(5, Math.min(width - 5, share * width));
    pen.beginPath();
    if (level === "bad") { pen.moveTo(x - 4, y - 4); pen.lineTo(x + 4, y + 4); pen.moveTo(x + 4, y - 4); pen.lineTo(x - 4, y + 4); }
    else if (level === "warn") { pen.moveTo(x, y - 5); pen.lineTo(x + 5, y + 4); pen.lineTo(x - 5, y + 4); pen.closePath(); }
    else { pen.arc(x, y, 3, 0, 7); }
    pen.strokeStyle = theme.color("card");
    pen.lineWidth = level === "bad" ? 5 : 3;
    pen.stroke();
    pen.fillStyle = theme.color(level);
    pen.strokeStyle = pen.fillStyle;
    pen.lineWidth = 2;
    if (level === "bad") { pen.stroke(); } else { pen.fill(); }
  }
}

function bars({ users }, from, to, gap, height, block) {
  for (const [user, held, used] of users) {
    const tall = (held / 100) * height;
    block(user, from, height - tall, to - from - gap, tall, used === null ? null : Math.min(1, used / held));
  }
}

const touches = (one, next) => Boolean(one && next) && one.slot + 1 === next.slot && one.users.some(([user]) => next.users.some(([other]) => other === user));

// Of a slot that was held in part, the end beside the slot that it continues.
const leftOf = (slots, at, from, to, room) => (touches(slots[at - 1], slots[at]) || !touches(slots[at], slots[at + 1]) ? from : to - room);

// Where the hatch of each slot lies: where its outages were if that is known, else beside what was not seen either. Else
// its place in the slot is unknown: it is as wide as that, and as high as it was long, above what was held meanwhile.
function unseen(one, edge, now) {
  const slots = new Set(one.unseen.map(([slot]) => slot));
  const placed = new Map();
  for (const [slot, share, begin] of one.unseen) {
    if (begin === undefined) { continue; }
    const [from, wide] = [edge(slot), edge(slot + 1) - edge(slot)];
    const left = Math.round(from + (wide * begin) / 100);
    const hole = { left, right: Math.min(now, Math.max(left + 1, Math.round(left + (wide * share) / 100))), share };
    const { holes } = placed.get(slot) || { holes: [] };
    holes.push(hole);
    placed.set(slot, { left: Math.min(...holes.map((each) => each.left)), right: Math.max(...holes.map((each) => each.right)), share, holes });
  }
  return new Map(one.unseen.map(([slot, share]) => {
    if (placed.has(slot)) { return [slot, placed.get(slot)]; }
    const [from, to] = [edge(slot), Math.min(edge(slot + 1), now)];
    const room = (edge(slot + 1) - from) * Math.min(1, share / 100);
    if (slots.has(slot - 1) === slots.has(slot + 1) && room < to - from) {
      return [slot, { left: from, right: to, share, level: Math.max(LOW, room / (to - from)) }];
    }
    const left = slots.has(slot - 1) ? from : Math.max(from, to - room);
    return [slot, { left, right: Math.min(left + room, to), share }];
  }));
}

const heldIn = ({ users }, user) => (users.find(([other]) => other === user) || [user, 0])[1];

// The parts of each slot.
function together(parts) {
  const found = [];
  for (const [slot, ...part] of parts) {
    const last = found[found.length - 1];
    if (last && last.slot === slot) { last.users.push(part); } else { found.push({ slot, users: [part] }); }
  }
  return found;
}

function hatch(pen, left, right, height, share) {
  const area = { left, right: Math.max(left + 1.5, right), top: 0, height };
  hatchArea(pen, area, 5, theme.color("mut", share > 50 ? 0.75 : 0.45));
}

// The name of who held it alone, where there is room for it within what is drawn as held.
function names(pen, slots, height) {
  pen.font = `600 11.5px ${getComputedStyle(document.body).fontFamily}`;
  pen.textBaseline = "middle";
  let run = null;
  const write = () => {
    if (!run || !run.user) { return; }
    const wide = pen.measureText(run.user).width;
    if (wide + ROOM > run.right - run.left) { return; }
    pen.fillStyle = theme.color("card", 0.72);
    pen.beginPath();
    pen.roundRect(run.left + 3, height / 2 - 9, wide + 10, 18, 4);
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
