// Neighbors that are alike as one row that opens, in the order of their ordinals: what differs stands between them.
// @ts-check
import { attribute } from "./dom.js";
import { feed } from "./feed.js";
import { isOpened } from "./groups.js";

export function epochFolds(table) {
  const { folds: name } = table.dataset;

  // Which rows stand where; null where single rows are sought, are in another order, or where none are alike. It
  // `lacks` rows where one is open whose members have not come.
  function plan(source, wanted, { isDown, isUsual }) {
    const folds = feed.view.tables.get(name);
    if (wanted || !isUsual || !folds || !folds.order.length) { return null; }
    const all = folds.order.map((key) => folds.rows.get(key)).sort((one, other) => one.first - other.first);
    const ordered = source.order.map((key) => source.rows.get(key)).sort((one, other) => one.ordinal - other.ordinal);
    const rows = new Map(source.rows);
    const keys = []; // from the lowest ordinal: behind each fold that is open, what is in it
    let lacks = false;
    let at = 0;
    for (const fold of all) {
      for (; at < ordered.length && ordered[at].ordinal < fold.first; at += 1) { keys.push(single(ordered[at])); }
      const begin = at;
      while (at < ordered.length && ordered[at].ordinal <= fold.last) { at += 1; }
      rows.set(fold.key, Object.assign(fold, { isOpen: isOpened(fold.key, false), isFold: true }));
      const members = fold.isOpen ? ordered.slice(begin, at).map((row) => Object.assign(row, { isChild: true }).key) : [];
      lacks = lacks || (fold.isOpen && members.length < fold.count);
      if (isDown) { keys.push(...members, fold.key); } else { keys.push(fold.key, ...members); }
    }
    for (; at < ordered.length; at += 1) { keys.push(single(ordered[at])); }
    return { rows, keys: isDown ? keys.reverse() : keys, lacks };
  }

  const single = (row) => Object.assign(row, { isChild: false }).key;

  function mark(line, row) {
    line.classList.toggle("fold", Boolean(row.isFold));
    line.classList.toggle("opened", Boolean(row.isOpen));
    line.classList.toggle("child", Boolean(row.isChild));
    const button = line.querySelector("button.row");
    if (button) { attribute(button, "aria-expanded", String(Boolean(row.isOpen))); }
  }

  return { open() {}, plan, mark, isFirst: () => false, inForce: (by) => by, hasOrders: false };
}
