// Reads [[name of a function, its arguments], …] and writes what each gives.
"use strict";
const fs = require("node:fs");
const { load } = require("./browser.js");

const { text } = load().gpumon;
const cases = JSON.parse(fs.readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(cases.map(([name, args]) => text[name](...args.map((one) => (one === null ? NaN : one))))));
