// A layout of Dash's html components as elements: what the page does with them is ours, so nobody has to watch them.
"use strict";
(function (g) {
  const NAMES = { className: "class", htmlFor: "for" };

  g.elements = function (found) {
    if (found === null || found === undefined) { return []; }
    if (Array.isArray(found)) { return found.flatMap(g.elements); }
    if (typeof found !== "object") { return [String(found)]; }
    const { children, ...props } = found.props;
    const set = Object.fromEntries(Object.entries(props).map(([name, value]) => [NAMES[name] || name, value === true ? "" : value]));
    return [g.make(found.type.toLowerCase(), set, ...g.elements(children))];
  };
})(window.gpumon);
