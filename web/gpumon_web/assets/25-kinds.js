// Values as text or elements, by kind. Only text, and links to pages, enter the page.
"use strict";
(function (g) {
  const WINDOW = 600; // s, of small charts
  const t = g.text;
  const now = () => (t.known(g.feed.now) ? g.feed.now : Date.now() / 1000);
  const absent = (value) => value === null || value === undefined;
  // Whether nothing is known of now; the end of a recording is as it was.
  const isOld = () => !g.feed.isFresh() && g.feed.state !== "ended";

  const texts = {
    text: words, mono: (value) => value || t.MISSING,
    count: t.count, percent: t.percent, bytes: t.bytes, watts: t.watts, celsius: t.celsius, gigahertz: t.gigahertz,
    joules: (value, node) => energy(value, node.dataset.most ? g.feed.value(node.dataset.most) : undefined), duration: t.brief, span: lasted,
    elapsed: (value) => (!t.known(value) ? t.MISSING : isOld() ? `since ${t.when(value, Date.now() / 1000)}` : t.span(now() - value)), age: (value) => t.age(value, now()),
    when: (value, node) => { g.attribute(node, "title", t.known(value) ? t.moment(value) : ""); return t.when(value, Date.now() / 1000); },
    // A number of seconds, or since when something has lasted.
    lasting: (value) => t.brief(absent(value) || isLeft(value) ? NaN : value.since === undefined ? value : now() - value.since),
  };

  // Words, alone or in an object; those for what is so now and those for what was; or words and a moment.
  function words(value, node) {
    if (absent(value)) { return ""; }
    if (value.old !== undefined && !g.feed.isFresh()) { return words(value.old, node); }
    if (value.time !== undefined) { g.attribute(node, "title", t.moment(value.time)); return `${value.text} ${t.when(value.time, Date.now() / 1000)}`; }
    return String(value.text === undefined ? value : value.text);
  }

  // Joules, or of what is not wholly known that they are at least so many.
  function energy(value, largest) {
    return !absent(value) && value.least !== undefined ? `≥ ${t.joules(value.least, largest)}` : t.joules(value, largest);
  }

  // An estimate in words, which nobody makes once nothing new comes; or what something took.
  function lasted(value) {
    if (!absent(value) && value.took !== undefined) { return t.brief(absent(value.took) ? NaN : value.took); }
    return g.feed.isFresh() ? t.span(value) : t.MISSING;
  }

  const drawn = {
    state: (one) => {
      const state = g.stateNow(one);
      const title = state === one.state ? one.title : g.feed.oldState();
      const parts = [g.make("span", { class: `state ${state}`, "aria-hidden": "true" }),
        g.make("span", { class: "sr", text: one.before }), g.make("b", { text: one.text }),
        g.make("span", { class: "sr", text: `, ${one.name}, ${title}` })];
      return [one.group ? g.opener(one.group, ...parts) : g.make("a", { class: "row", href: address(one.link), title: one.name }, ...parts)];
    },
    // A state in words.
    standing: (one) => [g.stateNow(one) === one.state ? g.make("span", { class: `tag ${one.level}`, text: one.text })
      : g.make("span", { class: "tag warn", text: g.feed.oldState() })],
    // Others like the one that is shown, with their states; the figure's arguments stay.
    places: (all) => all.map((one) => {
      const state = g.stateNow(one);
      const title = state === one.state ? one.title : g.feed.oldState();
      return g.make("a", { href: address(one.link) + g.keptArguments(), "aria-current": one.is_shown ? "page" : null, "aria-label": `${one.name}, ${title}` },
        g.make("span", { class: `state ${state}`, "aria-hidden": "true" }), one.text);
    }),
    // The parts of a whole: a bar, and each with its color and size.
    parts: (all) => (all.length ? [g.bar(pieces(all), "bar tall"), g.make("dl", { class: "divided" }, ...all.map((one) => g.make("div", {},
        g.make("dt", {}, g.bar(pieces([{ ...one, share: 1 }]), "bar dot"), one.old && isOld() ? one.old : one.title), g.make("dd", { text: one.size }))))] : []),
    // Words, or those of a row that opens.
    opening: (one) => [typeof one === "string" ? g.make("span", { text: one }) : g.opener(one.opens, g.make("b", { text: one.text }))],
    tag: (one) => [token(one)].filter(Boolean),
    person: (name) => [g.person(name)],
    link: (one) => [token(one)],
    bar: (parts) => [g.bar(pieces(parts))],
    // Used and total; without a total there is no share, and no bar.
    memory: (one) => {
      const pair = g.make("span", { class: "pair" }, g.make("span", { class: "used", text: one.used }), g.make("span", { class: one.total === t.MISSING ? "mut none" : "mut", text: one.total }));
      return one.parts ? [pair, g.bar(pieces(one.parts))] : [pair];
    },
    rich: (lines) => lines.map(line).filter(Boolean),
    // Sentences, each with what to do and the place that it leads to. One that opens has those behind it, which are
    // there from the first on: paper has them all.
    notes: (notes) => {
      const at = notes.findIndex((one) => one.opens);
      if (at < 0) { return notes.map(note); }
      const rest = notes.slice(at + 1).map(note);
      const button = g.make("button", { type: "button", class: "more", click: () => { g.turn(notes[at].opens, !isOpen()); place(); } });
      const isOpen = () => g.isOpened(notes[at].opens, false);
      const place = () => {
        g.put(button, isOpen() ? notes[at].opened : notes[at].text);
        g.attribute(button, "aria-expanded", String(isOpen()));
        for (const one of rest) { one.classList.toggle("rest", !isOpen()); }
      };
      place();
      return [...notes.slice(0, at).map(note), ...rest, g.make("li", { class: "opens-rest" }, button)];
    },
    // What is well and what is not, each with its state as a shape and a word.
    checks: (all) => all.map(lastReported).map((one) => g.make("li", { class: one.level },
      g.make("span", { class: `check ${one.level}`, "aria-hidden": "true" }), g.make("span", { class: "mut", text: one.title }),
      g.make("span", { class: "says" }, g.make("b", { text: t.unbroken(one.text) }), one.more ? g.make("span", { class: "mut", text: ` ${t.unbroken(one.more)}` }) : null,
        g.make("span", { class: "sr", text: { ok: ", well", warn: ", needs attention", bad: ", needs attention", unknown: ", unknown" }[one.level] || "" })))),
    // A number of the user's own: one that is none is no missing value but an alarm.
    logged: (value) => [g.make("span", { class: t.odd(value) ? "alarm" : null, text: t.digits(value) })],
    // Buttons of which one is pressed: each sets an argument of the address.
    choices: (all) => all.map((one) => g.make("button", {
      type: "button", text: one.text, title: one.title, "aria-pressed": String(one.is_pressed), click: () => { g.go({ [one.arg]: one.value }); },
    })),
    tick: (one) => [g.tick(one)],
    picked: (one) => g.picked(one),
    // A list of which one sets an argument of the address.
    pick: (one) => {
      const options = [["", `All ${one.title}s`], ...one.options].map(([value, text]) => g.make("option", { value, text, selected: value === one.chosen }));
      const list = g.make("select", { class: one.chosen ? "pick chosen" : "pick", "aria-label": one.title }, ...options);
      list.addEventListener("change", () => { g.go({ [one.arg]: list.value || null }); });
      return [list];
    },
    // The way to another server, which whoever runs this one wrote down.
    away: (one) => (/^https?:\/\//.test(one.href) ? [g.make("a", { class: "button", text: one.text, href: one.href, rel: "noreferrer" })] : []),
    // A field whose words set an argument of the address, once they are entered.
    asked: (one) => {
      const field = g.make("input", { type: "search", class: "search", placeholder: one.words, "aria-label": one.title, value: one.text, spellcheck: "false" });
      field.addEventListener("change", () => { g.go({ [one.arg]: field.value.trim() || null }); });
      return [field];
    },
    strip: (one) => [g.strip(one)],
    day: (uuids) => g.day(uuids),
    mine: (one) => g.mine(one),
    filters: (all) => g.filters(all),
    // Labels beside each other, each at its share of the width.
    ticks: (all) => all.map((one) => {
      const label = g.make("span", { text: one.time === undefined ? one.text : t.when(one.time, Date.now() / 1000).replace("today ", "") });
      label.style.left = `${one.at * 100}%`;
      return label;
    }),
    download: (one) => [g.make("a", { class: "button", text: one.text, href: one.href.startsWith("api/") ? one.href : "#/", download: true })],
  };

  // A check once nothing new comes: what was well may be so no more, and what was wrong is said as of then.
  function lastReported(one) {
    if (!isOld()) { return one; }
    if (one.level === "unknown") { return one; }
    return one.level === "ok" ? { ...one, level: "unknown", text: "not known now", more: "" } : { ...one, more: [one.more, "when last seen"].filter(Boolean).join(" · ") };
  }

  const address = (link) => (link.startsWith("#/") ? link : "#/");
  const pieces = (parts) => parts.map((part) => ({ ...part, color: part.color || g.theme.ofUser(part.user) }));

  function note(one) {
    const about = one.about ? g.make("span", { class: `tag ${one.level}`, text: one.about }) : null;
    const wasSo = one.old !== undefined && !g.feed.isFresh();
    const text = wasSo ? one.old : one.time === undefined ? one.text : `${one.text}, ${t.moment(one.time)}`;
    const remedy = one.action ? [" ", g.make("span", { class: "remedy", text: t.unbroken(one.action) })] : [];
    const said = g.make("span", { class: about || one.link ? null : "mut" }, t.unbroken(text), ...remedy);
    return g.make("li", {}, ...(one.link ? [g.make("a", { href: address(one.link) }, about, said)] : [about, said]));
  }

  function line(one) {
    if (!one.line) { return token(one); }
    const found = one.line.map(token).filter(Boolean);
    return found.length ? g.make("div", { class: one.css }, ...found) : null;
  }

  // One piece of a line; null where it is not to be said of what is old.
  function token(one) {
    if ((one.now && !g.feed.isFresh()) || isLeft(one)) { return null; }
    if ("person" in one) { return one.link ? g.make("a", { class: "row", href: address(one.link) }, g.person(one.person)) : g.person(one.person); }
    if ("link" in one) { return g.make("a", { class: one.css, text: one.text, href: address(one.link), "aria-label": one.label || null, title: one.text.length > 24 ? one.text : null }); }
    if ("tag" in one) { return g.make("span", { class: `tag ${one.level}`, text: tagged(one) }); }
    if ("fact" in one) { return g.make("span", { class: "fact" }, `${one.fact} `, g.make("b", one.time === null ? { text: one.text } : { text: t.when(one.time, Date.now() / 1000), title: t.moment(one.time) })); }
    if ("opens" in one) { return g.opener(one.opens, g.make("b", { text: one.text })); }
    if ("bar" in one) { return g.bar(pieces(one.bar), one.css); }
    return g.make("span", { class: one.css, text: one.text });
  }

  function tagged(one) {
    if (one.old === undefined || g.feed.isFresh()) { return one.tag; }
    return g.feed.state === "ended" ? one.ended : one.old;
  }

  // Whether a run has left the epoch of a row that was read while it was in it: the headline knows that first.
  const isLeft = (one) => one.while !== undefined && g.feed.view.values.has("epoch") && g.feed.view.values.get("epoch") !== one.while;

  // The state that may be said now: an old one is none, but for those that last.
  g.stateNow = (one) => (g.feed.isFresh() || one.lasts ? one.state : "stale");

  // `node` shows `value` as `kind`. A cell of a small unit has a span for it.
  g.show = function (node, kind, value) {
    if (kind === "spark") { spark(node, value); return; }
    if (kind === "tiles") { g.tiles(node, value); return; }
    if (kind === "nodes") { g.nodes(node, value); return; }
    if (!g.feed.isFresh() && node.dataset.old !== undefined) { old(node, kind); return; }
    if (!texts[kind]) { g.replace(node, ...(absent(value) ? [] : drawn[kind](value))); return; }
    const text = texts[kind](value, node);
    if (!node.dataset.unit) { g.put(node, text); return; }
    g.putValue(node, text);
  };

  // Nothing is known of it.
  g.empty = function (node) {
    const { kind, unit } = node.dataset;
    g.show(node, kind, unit && texts[kind] ? t.MISSING : null);
  };

  function old(node, kind) {
    const text = node.dataset.old;
    if (drawn[kind]) { g.replace(node, ...(kind === "notes" ? drawn.notes([{ text }]) : [])); return; }
    if (node.dataset.unit) { g.putValue(node, text); } else { g.put(node, text); }
  }

  // What moves by itself, though no value came.
  g.moves = (kind, value) => (!absent(value) && value.while !== undefined) || kind === "spark" || kind === "age" || kind === "lasting" || kind === "elapsed";

  // The mean of lines; unknown where one of them is.
  function mean(lines) {
    if (lines.length === 1) { return lines[0]; }
    return lines[0].map((_, at) => (lines.some((one) => !t.known(one[at])) ? null : lines.reduce((sum, one) => sum + one[at], 0) / lines.length));
  }

  function spark(node, value) {
    if (absent(value)) { return; }
    const canvas = node.firstChild || node.appendChild(g.make("canvas", { class: "spark", "aria-hidden": "true" }));
    const { t: times, lines } = g.feed.view.series;
    const role = !g.feed.isFresh() ? "mut" : value.color || g.theme.ofUser(value.user);
    g.spark(canvas, times, mean(value.series.map((name) => lines.get(name) || [])), g.feed.clock(), WINDOW, role);
  }
})(window.gpumon);
