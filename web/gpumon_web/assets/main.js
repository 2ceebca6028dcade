// The entry of all scripts: starts the page that the address names.
// @ts-check
import "./compare.js";
import { start } from "./router.js";

start();
