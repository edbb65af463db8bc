// Runs the trace processor of Perfetto's user interface outside a browser.
//
//     node engine.js FOLDER < requests > answers
//
// FOLDER holds engine_bundle.js and trace_processor*.wasm; requests and answers are streams of TraceProcessorRpc.
// The bundle is made for a Web Worker: it fetches its program in one blocking request, takes a port in its first
// message, and talks over that port. It gets a context with just these, and no sign of Node.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

const folder = process.argv[2];
const log = (...words) => process.stderr.write(`${words.join(" ")}\n`);

class XMLHttpRequest {
  open(_method, url) {
    this.file = path.join(folder, path.basename(url));
  }
  send() {
    this.status = 200;
    this.response = fs.readFileSync(this.file);
  }
}

const worker = {
  console: { log, warn: log, error: log },
  XMLHttpRequest,
  importScripts: () => {},
  WorkerGlobalScope: class {},
  performance,
  TextDecoder,
  URL,
  location: { href: "http://localhost/" },
  setTimeout,
};
worker.self = worker;
vm.createContext(worker);
vm.runInContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"), worker);

// The engine is ready once the promises of this turn are settled.
setImmediate(() => {
  const answers = [];
  const port = { postMessage: (bytes) => answers.push(Buffer.from(bytes)) };
  worker.onmessage({ data: port });
  // The engine asks for an array of its own context.
  worker.requests = fs.readFileSync(0);
  port.onmessage({ data: vm.runInContext("new Uint8Array(requests)", worker) });
  fs.writeFileSync(1, Buffer.concat(answers));
});
