// The bar below the head of every page where the source is a recording that can be taken elsewhere: pause, seek, speed.
"use strict";
(function (g) {
  const STEPS = [[-600, "−10 min"], [-60, "−1 min"], [60, "+1 min"], [600, "+10 min"]];
  const SPEEDS = [1, 2, 5, 10, 60, 300];
  const SETTLES = 200; // ms after the last move of the slider
  const ONCE = "A log is read from beginning to end: 'gpumon record' makes a recording of it, which can be paused and moved.";
  const t = g.text;
  let parts = null;
  let timer = 0;
  let dragged = false;

  function build(place) {
    const position = g.position;
    const toggle = g.make("button", { type: "button", class: "button toggle", click: () => { if (position.isPaused) { position.resume(); } else { position.pause(); } draw(); } });
    const steps = STEPS.map(([seconds, name]) => g.make("button", {
      type: "button", class: "tool step", text: name, click: () => seek(position.here() + seconds),
    }));
    const slider = g.make("input", { type: "range", class: "slider", min: "0", step: "1", "aria-label": "Position in the recording" });
    const time = g.make("span", { class: "time" });
    const speed = g.make("select", { class: "speed", "aria-label": "Speed" });
    const rejoin = g.make("button", { type: "button", class: "button", text: "Rejoin", title: "Follow the playback of the server again", click: () => { position.rejoin(); draw(); } });
    const problem = g.make("span", { class: "cut" });
    slider.addEventListener("input", () => { dragged = true; told(position.known.begin + Number(slider.value)); });
    slider.addEventListener("change", () => {
      dragged = true;
      clearTimeout(timer);
      timer = setTimeout(() => seek(position.known.begin + Number(slider.value)), SETTLES);
    });
    speed.addEventListener("change", () => { position.setSpeed(Number(speed.value)); draw(); });
    place.append(toggle, speed, g.make("div", { class: "tools", role: "group", "aria-label": "Move" }, ...steps), slider, time, rejoin, problem);
    return { toggle, slider, time, speed, rejoin, problem };
  }

  function seek(time) {
    dragged = false;
    g.position.seek(time);
    draw();
  }

  function told(now) {
    const text = `${t.moment(now)} of ${t.clock(g.position.known.end, now)}`;
    g.put(parts.time, text);
    g.attribute(parts.slider, "aria-valuetext", t.moment(now));
  }

  // How far a log is, which is read from its begin to its end: nothing takes it elsewhere.
  function progress(place, [begin, end]) {
    if (!parts) {
      const bar = g.make("progress", { class: "slider", "aria-label": "Position in the log" });
      parts = { bar, time: g.make("span", { class: "time" }) };
      place.append(bar, parts.time, g.make("span", { class: "mut note", text: ONCE }));
    }
    const now = Math.min(Math.max(t.known(g.feed.now) ? g.feed.now : begin, begin), end);
    parts.bar.max = end - begin;
    parts.bar.value = now - begin;
    g.put(parts.time, `${t.moment(now)} of ${t.clock(end, now)}`);
  }

  const draw = g.player = function () {
    const place = document.getElementById("player");
    const { position } = g;
    g.hide(place, !position.known && !g.feed.log);
    if (g.feed.log) { progress(place, g.feed.log); return; }
    if (!position.known) { return; }
    parts = parts || build(place);
    const { begin, end, problem } = position.known;
    g.put(parts.toggle, position.isPaused ? "Play" : "Pause");
    g.hide(parts.rejoin, !position.isOwn);
    g.attribute(parts.slider, "max", String(Math.max(1, Math.ceil(end - begin))));
    const speeds = [...new Set([...SPEEDS, position.speed])].sort((a, b) => a - b);
    g.fill(parts.speed, speeds, () => speeds.map((one) => g.make("option", { value: one, text: `×${one}` })));
    parts.speed.value = String(position.speed);
    g.put(parts.problem, problem);
    if (!dragged) {
      const now = t.known(g.feed.now) ? g.feed.now : begin;
      parts.slider.value = String(Math.round(now - begin));
      told(now);
    }
  };
})(window.gpumon);
