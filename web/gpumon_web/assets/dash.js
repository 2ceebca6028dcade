// Pages that Dash renders: its components are loaded when such a page is first opened, and its callbacks get the
// arguments of the address. A page has a store for them, named after it: `compare-address`.
// @ts-check
import { make } from "./dom.js";
import { position } from "./position.js";
import { addressArguments } from "./address.js";

const RETRY = 30; // s until a question that got no answer is asked again
const SOON = 3; // s until scripts that did not come are asked for again
let loading = null;

// A script in a template was never run, and a copy of it made by cloning never is.
function copy({ src, text }) {
  return src ? make("script", { src }) : make("script", { text });
}

// Files in their order, each once; those that come are run.
export async function loadScripts(files) {
  const arrived = files.map((script) => new Promise((done, failed) => {
    script.async = false;
    script.addEventListener("load", done);
    script.addEventListener("error", () => { script.remove(); failed(new Error(script.src)); });
  }));
  document.head.append(...files);
  await Promise.all(arrived);
}

const plotly = () => document.querySelector("meta[name=plotly]").getAttribute("content");

// plotly.js, which is loaded once something is drawn with it.
export const loadPlotly = () => (window.Plotly ? Promise.resolve() : loadScripts([make("script", { src: plotly() })]));

// Dash's own scripts, which stand in a template of the document: files, and then those that are written out, the last of
// which starts Dash.
async function load() {
  // Dash would set an address without a version, which a browser asks for again each hour.
  Object.defineProperty(window, "_dashPlotlyJSURL", { get: plotly, set() {} });
  const template = /** @type {HTMLTemplateElement} */ (document.getElementById("dash"));
  const scripts = [...template.content.querySelectorAll("script")].map(copy);
  await loadScripts(scripts.filter((script) => script.src));
  document.body.append(...scripts.filter((script) => !script.src));
}

function appeared(id) {
  return new Promise((done) => {
    const look = () => { if (document.getElementById(id)) { watch.disconnect(); done(null); } };
    const watch = new MutationObserver(look);
    watch.observe(document.body, { childList: true, subtree: true });
    look();
  });
}

export const setDashProps = (id, values) => window.dash_clientside.set_props(id, values);

// A page in the form that the router knows: show(), about() and tick().
export function dashPage(section) {
  const { page: name, title } = section.dataset;
  let isReady = false;
  let sent = ""; // arguments that the callbacks have got
  let due = 0;
  dashPages[name].again = (seconds) => { due = performance.now() + seconds * 1000; };

  async function open() {
    try {
      loading = loading || load();
      await loading;
    } catch {
      loading = null;
      setTimeout(open, SOON * 1000);
      return;
    }
    await appeared(name);
    isReady = true;
    dashPages[name].ready();
    show();
  }
  open();

  // Arguments of the address; a zoom is not sent to the server.
  function show() {
    if (!isReady || section.hidden) { return; }
    const args = Object.fromEntries(addressArguments());
    dashPages[name].show(args);
    const asked = Object.fromEntries(Object.entries(args).filter(([one]) => one !== "from" && one !== "to"));
    const at = new URLSearchParams(position.exact()).get("at");
    if (at) { asked.at = at; }
    if (JSON.stringify(asked) !== sent || performance.now() >= due) { send(asked); }
  }

  function send(asked) {
    sent = JSON.stringify(asked);
    due = performance.now() + RETRY * 1000;
    setDashProps(`${name}-address`, { data: { ...asked, asked: Date.now() } });
  }

  return {
    title, show,
    about() { if (isReady) { dashPages[name].about(); } },
    tick() { if (isReady && performance.now() >= due) { show(); } },
  };
}

// What a page does beyond what its callbacks do, by its name: ready(), show(arguments) and about(). It gets again(seconds),
// which says when its callbacks shall be asked again.
export const dashPages = {};
