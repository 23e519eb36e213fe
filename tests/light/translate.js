// Translates the lines of a JSON list by the engine in WebAssembly: node translate.js FOLDER LINES BEAM; prints JSON.
"use strict";
const fs = require("fs"), path = require("path");
const [folder, lines, beam] = process.argv.slice(2);
const { Engine } = require(path.resolve(folder, "engine.js"));
const code = fs.readFileSync(path.join(folder, "nmt.wasm.gz"));

(async () => {
  const imports = WebAssembly.Module.imports(new WebAssembly.Module(require("zlib").gunzipSync(code)));
  let engine;
  try {
    engine = await Engine.open(code, new Uint8Array(fs.readFileSync(path.join(folder, "model.nmt"))));
  } catch (error) {
    console.log(JSON.stringify({ problem: error.message }));
    return;
  }
  const start = process.cpuUsage();
  const results = JSON.parse(fs.readFileSync(lines)).map((line) => engine.translate(line, { beam_size: Number(beam) }));
  const problems = [{ glossry: 1 }, { threads: 2 }, { repeat_penalty: 0 }, { n_best: 0.5 }, { search: "mbr" }, { search_options: { seed: 1 } }, { seed: 1 }].map((options) => {
    try { return engine.translate("a", options).text; } catch (error) { return error.message; }
  });
  const several = engine.translate(lines && JSON.parse(fs.readFileSync(lines))[0],
    { n_best: 3, repeat_penalty: 1.5, split_long: "none", scores: true, shortlist: false }).n_best;
  const samples = engine.translate(JSON.parse(fs.readFileSync(lines))[0],
    { search: "sample", n_best: 3, search_options: { seed: 4, top_p: 0.9 }, entropies: true });
  const kept = engine.translate("\u4e01 {x} \u4e02 Z", { placeholders: true, replace_unknown: true, glossary: { "\u4e02": "A b" } }).text;
  const used = process.cpuUsage(start), memory = engine.c.memory.buffer.byteLength;
  console.log(JSON.stringify({ imports, problems, kept, several, samples, card: engine.card, results, memory, ms: (used.user + used.system) / 1000 }));
})();
