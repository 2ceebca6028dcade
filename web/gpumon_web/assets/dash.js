// Pages that Dash renders. Its scripts are loaded when such a page is first opened, and its callbacks get the arguments of the
// address through a store that is named after the page: `compare-address`.
// @ts-check
import { addressArguments } from "./address.js";
import { make } from "./dom.js";
import { position } from "./position.js";

const REPEAT = 30; // s until the callbacks are asked again if they have not answered
const RETRY = 3000; // ms until scripts that could not be loaded are requested again
let loading = null;

// By the name of a page, its own part beside the callbacks: ready(), show(arguments) and about(). `again(seconds)` is added to it
// and sets when the callbacks are called next.
export const dashPages = {};

export const setDashProps = (id, values) => window.dash_clientside.set_props(id, values);

// Loads files in their order.
async function loadScripts(files) {
  const loaded = files.map((script) => new Promise((done, failed) => {
    script.async = false;
    script.addEventListener("load", done);
    script.addEventListener("error", () => { script.remove(); failed(new Error(script.src)); });
  }));
  document.head.append(...files);
  await Promise.all(loaded);
}

const plotlyAddress = () => document.querySelector("meta[name=plotly]").getAttribute("content");

export const loadPlotly = () => (window.Plotly ? Promise.resolve() : loadScripts([make("script", { src: plotlyAddress() })]));

// Loads Dash, whose scripts are in a template of the document: first the files, then the inline ones, the last of which starts
// Dash. A script of a template runs only as a new element.
async function loadDash() {
  // Dash would set an address without a version, which a browser requests again each hour.
  Object.defineProperty(window, "_dashPlotlyJSURL", { get: plotlyAddress, set() {} });
  const template = /** @type {HTMLTemplateElement} */ (document.getElementById("dash"));
  const scripts = [...template.content.querySelectorAll("script")];
  await loadScripts(scripts.filter(({ src }) => src).map(({ src }) => make("script", { src })));
  document.body.append(...scripts.filter(({ src }) => !src).map(({ text }) => make("script", { text })));
}

function appears(id) {
  return new Promise((done) => {
    const look = () => { if (document.getElementById(id)) { watch.disconnect(); done(null); } };
    const watch = new MutationObserver(look);
    watch.observe(document.body, { childList: true, subtree: true });
    look();
  });
}

// A page in the form that router.js uses.
export function dashPage(section) {
  const { page: name, title } = section.dataset;
  const page = dashPages[name];
  let isReady = false;
  let sent = ""; // the arguments that the callbacks have
  let due = 0;
  page.again = (seconds) => { due = performance.now() + seconds * 1000; };

  async function load() {
    try {
      loading ??= loadDash();
      await loading;
    } catch {
      loading = null;
      setTimeout(load, RETRY);
      return;
    }
    await appears(name);
    isReady = true;
    page.ready();
    show();
  }
  load();

  // Sends the arguments of the address to the callbacks, without a zoom, which the page does itself.
  function show() {
    if (!isReady || section.hidden) { return; }
    const params = addressArguments();
    page.show(params);
    const wanted = Object.fromEntries([...params].filter(([one]) => one !== "from" && one !== "to"));
    const at = new URLSearchParams(position.exact()).get("at");
    if (at) { wanted.at = at; }
    if (JSON.stringify(wanted) === sent && performance.now() < due) { return; }
    sent = JSON.stringify(wanted);
    page.again(REPEAT);
    setDashProps(`${name}-address`, { data: { ...wanted, asked: Date.now() } });
  }

  return {
    title, show,
    about() { if (isReady) { page.about(); } },
    tick() { if (isReady && performance.now() >= due) { show(); } },
  };
}
