/* The web page's engine in node, for bench_engine_case.py: start to the first line, lines one at a time.

   node scripts/bench_engine_web.js FOLDER '{"beam": 1, "lines": 200, "repeats": 3}' < lines

   FOLDER is the output of scripts/build_web --model. Prints a JSON object; all times are CPU times of this process,
   including the compilation of WebAssembly in the background. */
"use strict";

const fs = require("fs");
const path = require("path");

const [folder, given] = [path.resolve(process.argv[2]), JSON.parse(process.argv[3])];
const { Engine } = require(path.join(folder, "engine.js"));
const seconds = () => { const used = process.cpuUsage(); return (used.user + used.system) / 1e6; };

async function main() {
  const model = new Uint8Array(fs.readFileSync(path.join(folder, "model.nmt")));
  const engine = await Engine.open(fs.readFileSync(path.join(folder, "nmt.wasm.gz")), model);
  const translate = (line) => engine.translate(line, { beam_size: given.beam }).text;
  translate("A man is riding a bike .");
  const start = seconds(), memory = process.memoryUsage().rss / 2 ** 20;
  const lines = fs.readFileSync(0, "utf-8").replace(/\n$/, "").split("\n");
  lines.slice(0, lines.length / 2).forEach(translate);
  const single = [], all = [];
  let found = [];
  for (let repeat = 0; repeat < given.repeats; repeat++) {
    let before = seconds();
    lines.slice(0, given.lines).forEach(translate);
    single.push(1000 * (seconds() - before) / Math.min(given.lines, lines.length));
    before = seconds();
    found = lines.map(translate);
    all.push(lines.length / (seconds() - before));
  }
  console.log(JSON.stringify({
    start_cpu_s: start, memory_mb: memory, single_ms: Math.min(...single), batch_per_cpu_s: Math.max(...all), found,
  }));
}

main();
