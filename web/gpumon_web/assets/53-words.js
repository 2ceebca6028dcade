// Beside the panels of a chart: the name of each, its newest value and what it was in the view; as elements on the page,
// and as text of a file. `isWhole`: all of the document is in view.
"use strict";
(function (g) {
  const GUTTER = 176;
  const t = g.text;

  // Why a panel has no value of now, and for how long: `lost 40 s`.
  function absence(doc, gone) {
    const age = t.known(gone.age) ? gone.age : doc.silent ? doc.silent.age : NaN;
    const words = doc.silent ? doc.silent.title : "no value for";
    return t.known(age) && age >= 1 ? `${words} ${t.span(age)}` : doc.silent ? words : "no value";
  }

  // A panel whose values are of what is over: the last ones, and none of now.
  const isOver = (doc, panel) => !doc.goesOn && (panel.lists || Boolean(doc.spans));
  const headOf = (doc, panel) => (isOver(doc, panel) ? `${panel.title}, last` : panel.title);

  // The last value of a line in the view: what was logged may be no number.
  const lastly = (panel, facts) => (facts.odd ? facts.odd : facts.last === null ? t.MISSING : g.scale.write(panel.unit, facts.last));

  // Words of which no number stands in another row than the word and the unit that it belongs to, and no dot begins one.
  const whole = (text) => t.unbroken(text).replace(/\b(of|peak|mean|max|lowest|to) (?=[\d−-])/g, "$1\u00a0").replace(/ ·/g, "\u00a0·");

  // What a gutter says: the name, the newest value, and what was in the view.
  g.said = function (doc, one, isWhole) {
    const { panel, facts } = one;
    const missing = one.isNow && one.gone[0];
    if (panel.lists) { return [headOf(doc, panel), "", ""]; }
    const main = facts[0];
    if (missing) { return [panel.title, t.MISSING, t.unbroken(absence(doc, missing))]; }
    const value = main ? lastly(panel, main) : t.MISSING;
    const checked = panel.lines.findIndex((line) => line.look === "dots");
    const other = checked > 0 ? lastly(panel, facts[checked]) : t.MISSING;
    const name = other === t.MISSING ? "" : panel.lines[checked].label;
    const beside = name && `${name.startsWith(`${panel.title}, `) ? name.slice(panel.title.length + 2) : name} ${other}`; // as `end of epoch 0.41`
    const context = main ? g.context(panel, main, isWhole, one.isSmall) : "";
    const parts = one.isSmall ? [context] : [g.covers(doc, one), context, g.thin(panel)];
    return [headOf(doc, panel), value, whole(beside || parts.filter(Boolean).join(" · "))];
  };

  // The last value in the view of one line of several.
  function lastOf({ panel, facts, isNow, gone }, nth) {
    return isNow && gone[nth] ? t.MISSING : lastly(panel, facts[nth]);
  }

  // The gutters of a page; `show` puts there what they say.
  g.gutters = function () {
    const node = g.make("div", { class: "gutters" });

    function panelNode(doc, panel) {
      const head = headOf(doc, panel);
      return g.make("div", { class: panel.lists ? "gutter lists" : "gutter" },
        g.make("span", { class: "what", text: head, title: head }), g.make("span", { class: "value", "data-unit": "unit" }), g.make("span", { class: "below" }),
        panel.lists ? g.make("span", { class: "each" }, ...panel.lines.map((line) => row(line))) : g.make("span", { class: "covers mut" }));
    }

    function show(doc, at, isWhole) {
      const sign = doc.panels.map((panel) => [panel.key, headOf(doc, panel), panel.lists ? panel.lines.map((line) => [line.label, line.role]) : 0]);
      g.fill(node, sign, () => doc.panels.map((panel) => panelNode(doc, panel)));
      node.classList.toggle("small", at.isSmall);
      [...node.children].forEach((child, index) => put(child, doc, at.panels[index], at, isWhole));
    }

    function put(child, doc, one, at, isWhole) {
      child.style.top = `${one.head}px`;
      child.style.height = `${one.bottom - one.head}px`;
      const [, value, below] = g.said(doc, one, isWhole);
      g.putValue(child.children[1], value);
      const under = !one.panel.lists && at.isSmall && value !== t.MISSING ? g.under(doc, one) : "";
      const isUnder = at.isSmall && !one.panel.lists && value !== t.MISSING && g.isUnder(one.panel, at.width);
      g.put(child.children[2], isUnder ? "" : below);
      g.attribute(child.children[2], "title", below);
      if (one.panel.lists) { child.lastChild.style.setProperty("--row", g.inRow(one.panel)); }
      if (!one.panel.lists) { g.put(child.lastChild, isUnder ? [below, under].filter(Boolean).join(" · ") : under); } else {
        one.panel.lines.forEach((line, nth) => {
          const each = child.children[3].children[nth];
          g.put(each.lastChild, lastOf(one, nth));
          g.attribute(each, "title", line.label);
        });
      }
      const isBeyond = !one.panel.lists && one.facts[0] && !(one.isNow && one.gone[0]) && one.panel.limits.some((limit) => one.facts[0].last !== null && one.facts[0].last >= limit.at);
      const isOdd = !one.panel.lists && Boolean(one.facts[0] && one.facts[0].odd && value === one.facts[0].odd);
      child.classList.toggle("warn", isBeyond || isOdd);
    }

    function row(line) {
      const swatch = g.make("i", { "aria-hidden": "true" });
      swatch.style.background = `var(--${line.role})`;
      return g.make("span", { title: line.label }, swatch, line.mark ? g.make("span", { class: "mut", "aria-hidden": "true", text: line.mark }) : null, g.make("span", { class: "sr", text: `${line.label}: ` }), g.make("b"));
    }

    return { node, show };
  };

  g.shortened = function (pen, text, room) {
    let cut = text;
    while (cut.length > 1 && pen.measureText(`${cut}…`).width > room) { cut = cut.slice(0, -1); }
    return cut === text || pen.measureText(text).width <= room ? text : `${cut}…`;
  };

  // Words in as many rows as they need.
  function rows(pen, text, room) {
    const found = [];
    for (const word of text.split(" ")) {
      const longer = found.length ? `${found[found.length - 1]} ${word}` : word;
      if (found.length && pen.measureText(longer).width <= room) { found[found.length - 1] = longer; } else { found.push(word); }
    }
    return found;
  }

  // The same as text of a file.
  g.writeGutter = function (pen, doc, one, at, isWhole) {
    const mut = g.theme.color("mut");
    const [name, value, below] = g.said(doc, one, isWhole);
    const x = at.isSmall ? 12 : 16;
    pen.textAlign = "left";
    pen.textBaseline = "alphabetic";
    pen.font = g.chartFont(12.5, 560);
    pen.fillStyle = mut;
    pen.fillText(name, x, one.head + 18);
    const wide = pen.measureText(name).width + 10;
    pen.font = g.chartFont(at.isSmall ? 16 : 20, 650);
    pen.fillStyle = g.theme.color("ink");
    pen.fillText(value, at.isSmall ? x + wide : x, one.head + (at.isSmall ? 19 : 41));
    if (at.isSmall) { return; }
    pen.font = g.chartFont(11.5);
    pen.fillStyle = mut;
    rows(pen, below, GUTTER - 24).forEach((text, nth) => { pen.fillText(g.shortened(pen, text, GUTTER - 24), x, one.head + 58 + 14 * nth); });
    one.panel.lines.forEach((line, nth) => {
      if (!one.panel.lists) { return; }
      pen.fillStyle = g.theme.color(line.role);
      const last = lastOf(one, nth);
      const room = GUTTER - 30 - pen.measureText(last).width;
      pen.fillText(`${g.shortened(pen, line.label, room)} ${last}`, x, one.head + 58 + 14 * nth);
    });
  };
  g.GUTTER = GUTTER;
})(window.gpumon);
