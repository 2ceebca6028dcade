// Rows that are ticked, as a list in the address, and where it leads: the rows stay ticked in a link and when one comes back.
"use strict";
(function (g) {
  const asked = () => new URLSearchParams(location.hash.split("?")[1] || "");
  // Each name is quoted by itself, as one may have a comma.
  const unquoted = (text) => { try { return decodeURIComponent(text); } catch { return text; } };
  const ticked = (arg) => (asked().get(arg) || "").split(",").filter(Boolean).map(unquoted);
  const quoted = (all) => all.map(encodeURIComponent).join(",");

  // A box before a row; `one`: {arg, value, label, most}
  g.tick = function (one) {
    const box = g.make("input", { type: "checkbox", "aria-label": one.label, "data-arg": one.arg, "data-value": one.value, "data-most": one.most });
    box.addEventListener("change", () => {
      const others = ticked(one.arg).filter((value) => value !== one.value);
      const all = box.checked ? [...others, one.value] : others;
      g.setArguments({ [one.arg]: all.length ? quoted(all) : null });
      again();
    });
    shown(box, ticked(one.arg));
    return g.make("label", { class: "tick" }, box);
  };

  function shown(box, all) {
    box.checked = all.includes(box.dataset.value);
    box.disabled = !box.checked && all.length >= Number(box.dataset.most);
  }

  function again() {
    const page = document.querySelector("[data-page]:not([hidden])");
    for (const box of page.querySelectorAll(".tick input")) { shown(box, ticked(box.dataset.arg)); }
    for (const node of page.querySelectorAll("[data-kind=picked]")) { g.show(node, "picked", g.feed.value(node.dataset.bind)); }
  }

  // What can be done with them; `one`: {arg, page, as, fewest, words, is_vain}
  g.picked = function (one) {
    const all = ticked(one.arg);
    if (!all.length || one.is_vain) { return [g.make("span", { class: "mut", text: one.words })]; }
    const none = g.make("button", { type: "button", class: "button", text: "None", "aria-label": "Tick none", click: () => { g.setArguments({ [one.arg]: null }); again(); } });
    if (all.length < one.fewest) { return [g.make("span", { class: "mut", text: `${all.length} ticked` }), none]; }
    const address = `#/${one.page}?${new URLSearchParams({ [one.as]: quoted(all) })}`;
    return [g.make("a", { class: "button first", href: address, text: `Compare ${all.length} runs` }), none];
  };
})(window.gpumon);
