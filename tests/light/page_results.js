// What engine.js makes of a line in two parts, from an engine that always says the same: node page_results.js ENGINE.JS
"use strict";
const { Engine } = require(require("path").resolve(process.argv[2]));
const SOURCE = [[3, 2], [5, 4, 2]], TARGET = [[6, 2], [8, 7, 2]];
const ATTENTION = [[0.75, 0.25, 0.5, 0.5], [0.5, 0.25, 0.25, 0.75, 0.125, 0.125, 0, 0, 1]];
const PIECES = ["<pad>", "<unk>", "<eos>", "\u2581a", "b", "\u2581c", "\u2581x", "y", "\u2581z"];
const memory = new WebAssembly.Memory({ initial: 1 }), seen = { lines: [], freed: 0 };
let end = 1024;

const view = () => new DataView(memory.buffer);
const malloc = (size) => (end += Math.ceil(size / 8) * 8) - Math.ceil(size / 8) * 8;
function kept(values, Kind) {
  const place = malloc(values.length * Kind.BYTES_PER_ELEMENT);
  new Kind(memory.buffer, place, values.length).set(values);
  return place;
}
function told(values, size, Kind) {
  view().setUint32(size, values.length, true);
  return kept(values, Kind);
}
const text = (letters, size) => told(new TextEncoder().encode(letters), size, Uint8Array);
const c = {
  memory, malloc, free: () => {}, aligned_alloc: (_, size) => malloc(size), _initialize: () => {},
  nmt_options_size: () => 8, nmt_open_memory: () => 1, nmt_options_begin: () => {}, nmt_glossary_close: () => {}, nmt_set_glossary: () => {},
  nmt_option_name: (i) => (i < 2 ? kept([...new TextEncoder().encode(["attention", "n_best"][i]), 0], Uint8Array) : 0),
  nmt_option: () => 1, nmt_set_option: () => 1, nmt_card: (_, i, size) => text("{}", size),
  nmt_translate_requests: (_, request) => {
    const place = view().getUint32(request, true);
    seen.lines.push(new TextDecoder().decode(new Uint8Array(memory.buffer, place, view().getUint32(request + 4, true))));
    return 1;
  },
  nmt_language: () => 0,
  nmt_free: () => { seen.freed++; },
  nmt_flags: () => 0, nmt_parts: () => 2, nmt_sentences: () => 2, nmt_count: () => 1, nmt_score: () => -1,
  nmt_text: (_, line, i, size) => text("x zy", size),
  nmt_source_ids: (_, line, part, size) => told(SOURCE[part], size, Int32Array),
  nmt_ids: (_, line, i, part, size) => told(TARGET[part], size, Int32Array),
  nmt_attention: (_, line, i, part) => kept(ATTENTION[part], Float32Array),
  nmt_piece: (_, target, id, size) => text(PIECES[id], size),
};

const result = new Engine(c, new Uint8Array(8)).translate("a\ncb\r\n");
console.log(JSON.stringify({ ...seen, ...result }));
