// The entry of all scripts: starts the page that the address names. Pages of Dash add themselves when they are imported.
// @ts-check
import "./compare.js";
import { start } from "./router.js";

start();
