"use strict";
// The table of sentences: a list of which only the rows in sight are in the page, so that ten thousand stay fluent.
const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);
const { systems, references, source } = data;
const total = references[0].length;
const MARGIN = 800; // pixels above and below the window in which rows are in the page, too
const GUESS = 150; // height of a row that has never been there
const list = byId("list");
const repeats = data.repeating.map((places) => new Set(places));
const [sourceLanguage, targetLanguage] = data.languages;

/* An element with attributes, properties and children. */
function make(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

// ---- What is shown, and in which order

let texts; // of each sentence all its text, in small letters; made when it is searched for the first time
const searched = (place) => {
  texts ??= Array.from({ length: total }, (_, n) =>
    [source?.[n] ?? "", ...references.map((stream) => stream[n]), ...systems.map((system) => system.lines[n])]
      .join("\n").toLowerCase());
  return texts[place];
};

const SHOW = [
  ["all", "all sentences", () => true],
  ["differ", "where systems differ", (n) => systems.some((system) => system.lines[n] !== systems[0].lines[n])],
  ["maps", "with maps", (n) => String(n) in data.maps],
  ["twice", "that say something twice", (n) => repeats.some((places) => places.has(n))],
  ["empty", "with an empty translation", (n) => systems.some((system) => !system.lines[n].trim())],
];
const KEYS = [
  ["place", "place in the text", (n) => n],
  ["bleu", "BLEU", (n, of) => data.bleu[of][n]],
  ["chrf", "chrF2", (n, of) => data.chrf[of][n]],
  ["bleu-gain", `BLEU over ${systems[0].letter}`, (n, of) => data.bleu[of][n] - data.bleu[0][n]],
  ["chrf-gain", `chrF2 over ${systems[0].letter}`, (n, of) => data.chrf[of][n] - data.chrf[0][n]],
  ["spread", "difference of systems in chrF2", (n) => {
    const scores = data.chrf.map((all) => all[n]);
    return Math.max(...scores) - Math.min(...scores);
  }],
  ["length", "words", (n) => data.lengths[n]],
];
let view = []; // the sentences in sight of the filters, in their order

function fill(select, options) {
  select.replaceChildren(...options.map(([value, label]) => new Option(label, value)));
}

function setUp() {
  const several = systems.length > 1;
  const possible = SHOW.filter(([name]) => (several || name !== "differ") && (Object.keys(data.maps).length || name !== "maps"));
  fill(byId("show"), possible);
  fill(byId("key"), KEYS.filter(([name]) => several || !/gain|spread/.test(name)));
  fill(byId("of"), systems.map((system, n) => [n, system.letter]));
  fill(byId("base"), [
    ...systems.map((system, n) => [n, several ? system.letter : null]).filter(([, label]) => label !== null),
    ["reference", "the reference"], ["none", "nothing"],
  ]);
  if (several) byId("of").selectedIndex = 1;
  const boxes = systems.map((system, n) =>
    make("label", { title: system.name }, make("input", { type: "checkbox", checked: "", value: n }), make("b", { class: "chip" }, system.letter)));
  byId("shown").append(make("div", {}, ...boxes));
  byId("shown").hidden = !several;
  // The choices at the start are those that Reset brings back.
  for (const option of document.querySelectorAll("#form option")) option.defaultSelected = option.selected;
  if (matchMedia("(max-width: 46rem)").matches) byId("tools").open = false;
  let timer;
  byId("form").addEventListener("input", (event) => {
    clearTimeout(timer);
    timer = setTimeout(update, event.target.type === "search" ? 120 : 0);
  });
  byId("form").addEventListener("reset", () => setTimeout(update));
  byId("form").addEventListener("submit", (event) => event.preventDefault());
}

let settings; // what the rows look like
function update() {
  const wanted = byId("text").value.toLowerCase().trim();
  const keep = SHOW.find(([name]) => name === byId("show").value)[2];
  const key = KEYS.find(([name]) => name === byId("key").value)[2];
  byId("of").disabled = key.length < 2; // of those that no system decides
  const of = Number(byId("of").value), sign = byId("order").value === "down" ? -1 : 1;
  const least = Number(byId("least").value || 0), most = Number(byId("most").value || Infinity);
  const shown = systems.map((_, n) => n).filter((n) => byId("shown").querySelector(`input[value="${n}"]`).checked);
  view = [];
  for (let n = 0; n < total; n++)
    if (data.lengths[n] >= least && data.lengths[n] <= most && keep(n) && (!wanted || searched(n).includes(wanted)))
      view.push(n);
  const keys = new Map(view.map((n) => [n, key(n, of)]));
  view.sort((a, b) => sign * (keys.get(a) - keys.get(b)) || a - b);
  byId("count").textContent = view.length === total
    ? `${total.toLocaleString("en")} sentences`
    : `${view.length.toLocaleString("en")} of ${total.toLocaleString("en")} sentences`;
  const before = settings;
  settings = { shown, base: byId("base").value, wanted };
  if (JSON.stringify(before) !== JSON.stringify(settings)) {
    heights.fill(0);
    open.forEach((panel, place) => open.set(place, null));
  }
  for (const node of nodes.values()) node.remove();
  nodes.clear();
  current = 0;
  layOut();
  render();
}

// ---- Rows in sight

const heights = new Float32Array(total); // by sentence; 0: not known
const nodes = new Map(); // rows that are in the page, by sentence
const open = new Map(); // panels with maps that are open, by sentence
let offsets = [0]; // of the rows of the view, in pixels
let current = 0; // place in the view of the row that Tab goes to

function layOut() {
  offsets = new Array(view.length + 1);
  offsets[0] = 0;
  view.forEach((n, at) => { offsets[at + 1] = offsets[at] + (heights[n] || GUESS); });
  list.style.height = `${offsets[view.length]}px`;
}

/* The first row of the view that ends below `top`. */
function rowAt(top) {
  let low = 0, high = view.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (offsets[middle + 1] > top) high = middle; else low = middle + 1;
  }
  return low;
}

function render() {
  for (let round = 0; round < 4; round++) {
    const top = -list.getBoundingClientRect().top;
    const first = rowAt(top - MARGIN), last = Math.min(view.length, rowAt(top + innerHeight + MARGIN) + 1);
    const kept = new Map(); // sentence: place in the view
    for (let at = first; at < last; at++) kept.set(view[at], at);
    const focused = document.activeElement?.closest?.(".row");
    for (const [n, node] of nodes)
      if (!kept.has(n) && node !== focused) {
        node.remove();
        nodes.delete(n);
      }
    let next = list.firstChild;
    for (const [n, at] of kept) {
      let node = nodes.get(n);
      if (!node) nodes.set(n, node = row(n));
      node.setAttribute("aria-posinset", at + 1);
      node.setAttribute("aria-setsize", view.length);
      node.tabIndex = at === current ? 0 : -1;
      node.style.transform = `translateY(${offsets[at]}px)`;
      if (node === next) next = next.nextSibling;
      else if (node !== focused) list.insertBefore(node, next);
    }
    let moved = 0, changed = false;
    for (const [n, at] of kept) {
      const height = nodes.get(n).offsetHeight;
      if (height === heights[n]) continue;
      if (offsets[at + 1] <= top) moved += height - (heights[n] || GUESS);
      heights[n] = height;
      changed = true;
    }
    if (!changed) return;
    layOut();
    if (moved) scrollBy({ top: moved, behavior: "instant" }); // what is in sight stays where it is
  }
}

let waiting = false;
function soon() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; render(); });
}

function row(n) {
  const hasMaps = String(n) in data.maps;
  const head = make("div", { class: "head" }, make("span", {}, `${(n + 1).toLocaleString("en")}`),
    make("span", {}, `${data.lengths[n]} ${data.lengths[n] === 1 ? "word" : "words"}`));
  const node = make("li", { class: hasMaps ? "row has-maps" : "row", "data-place": n, "aria-label": `Sentence ${n + 1}` });
  if (hasMaps) {
    const button = make("button", { type: "button", class: "toggle", tabindex: -1, "aria-expanded": open.has(n) }, "Maps");
    head.append(button);
  }
  head.append(make("span", { class: "columns", "aria-hidden": "true" }, make("span", {}, "BLEU"), make("span", {}, "chrF2")));
  const sheet = make("div", { class: "sheet" }, head);
  if (source) sheet.append(line("source", "source", [source[n]], sourceLanguage));
  references.forEach((stream, k) =>
    sheet.append(line("reference", references.length > 1 ? `reference ${k + 1}` : "reference", [stream[n]], targetLanguage)));
  for (const of of settings.shown) {
    const found = line("system", make("b", { class: "chip", title: systems[of].name }, systems[of].letter), said(n, of), targetLanguage);
    found.append(make("span", { class: "marks" },
      make("span", { "data-of": "BLEU", "aria-label": `BLEU ${data.bleu[of][n]}` }, data.bleu[of][n].toFixed(1)),
      make("span", { "data-of": "chrF2", "aria-label": `chrF2 ${data.chrf[of][n]}` }, data.chrf[of][n].toFixed(1))));
    sheet.append(found);
  }
  node.append(sheet);
  if (open.has(n)) sheet.append(open.get(n) ?? opened(n));
  return node;
}

function line(kind, who, parts, language) {
  const text = make("span", { class: "said", dir: "auto", lang: language || null }, ...parts);
  return make("div", { class: `line ${kind}` }, make("span", { class: "who" }, who), text);
}

// ---- Differences, word by word

const WORD = /[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Thai}]|[\p{L}\p{M}\p{N}_]+|\s+|[^]/gu;
const split = (text) => text.match(WORD) ?? [];

/* The translation of a sentence with the words marked that another text lacks, and a line where words of it are missing. */
function said(n, of) {
  const text = systems[of].lines[n];
  let other = null;
  if (settings.base === "reference") other = references[0][n];
  else if (settings.base !== "none") {
    const base = Number(settings.base);
    if (base !== of) other = systems[base].lines[n];
    else if (systems.length === 2) other = systems[1 - base].lines[n];
  }
  if (other === null || other === text) return [text];
  const here = split(text), there = split(other);
  const kept = common(here, there);
  if (!kept) return [text];
  const parts = [];
  let run = "", gap = false;
  const flush = () => {
    if (run) parts.push(make("mark", {}, run));
    else if (gap) parts.push(make("mark", { class: "gone", title: "words of the other text are missing here" }));
    run = "";
    gap = false;
  };
  let j = 0;
  here.forEach((word, i) => {
    if (kept[i] < 0) {
      if (/^\s+$/.test(word) && !run) parts.push(word); else run += word;
      return;
    }
    gap = there.slice(j, kept[i]).some((lost) => lost.trim());
    j = kept[i] + 1;
    const space = run.match(/\s+$/)?.[0] ?? "";
    run = run.slice(0, run.length - space.length);
    flush();
    parts.push(space + word);
  });
  gap = there.slice(j).some((lost) => lost.trim());
  flush();
  return parts;
}

/* For each word its place in the other text by a longest common subsequence, else -1; null where both are too long. */
function common(here, there) {
  const rows = here.length, columns = there.length, width = columns + 1;
  if (rows * columns > 4e6) return null;
  const best = new Uint16Array((rows + 1) * width);
  for (let i = rows - 1; i >= 0; i--)
    for (let j = columns - 1; j >= 0; j--)
      best[i * width + j] = here[i] === there[j]
        ? best[(i + 1) * width + j + 1] + 1
        : Math.max(best[(i + 1) * width + j], best[i * width + j + 1]);
  const kept = new Array(rows).fill(-1);
  for (let i = 0, j = 0; i < rows && j < columns;)
    if (here[i] === there[j]) kept[i++] = j++;
    else if (best[(i + 1) * width + j] >= best[i * width + j + 1]) i++;
    else j++;
  return kept;
}

// ---- Maps

function toggle(n) {
  const node = nodes.get(n);
  if (!node || !(String(n) in data.maps)) return;
  if (open.has(n)) {
    node.querySelector(".panel").remove();
    open.delete(n);
  } else node.querySelector(".sheet").append(opened(n));
  node.querySelector(".toggle").setAttribute("aria-expanded", open.has(n));
  render();
}

function opened(n) {
  const found = data.maps[n], of = Object.keys(found);
  const system = make("select"), which = make("select"), place = make("div", { class: "map" });
  const readout = make("p", { class: "readout", "aria-live": "polite" }), strongest = make("ul");
  fill(system, of.map((k) => [k, `${systems[k].letter} ${systems[k].name}`]));
  const choices = make("div", { class: "choices" }, make("label", {}, "Map", which));
  if (of.length > 1) choices.prepend(make("label", {}, "System", system));
  const panel = make("div", { class: "panel" }, choices, place, readout,
    make("details", {}, make("summary", {}, "As text"), strongest));
  const show = () => draw(found[system.value], found[system.value].maps[which.value], { place, readout, strongest });
  const refill = () => {
    const before = which.selectedOptions[0]?.text;
    fill(which, found[system.value].maps.map((map, k) => [k, map.title]));
    const same = [...which.options].findIndex((option) => option.text === before);
    if (same >= 0) which.selectedIndex = same;
    show();
  };
  system.addEventListener("change", () => { refill(); render(); });
  which.addEventListener("change", () => { show(); render(); });
  panel.querySelector("details").addEventListener("toggle", render);
  open.set(n, panel);
  panel.draw = show;
  if (found[of[0]].maps.length) requestAnimationFrame(() => { refill(); render(); });
  else place.textContent = "This model shows neither attention nor memory.";
  return panel;
}

const SVG = "http://www.w3.org/2000/svg";
function shape(name, attributes, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

/* Tokens as people read them: the mark of a word's begin is left out, and what continues a word is told by its class. */
function labels(tokens) {
  const pieces = tokens.some((token) => token.startsWith("▁"));
  return tokens.map((token) => ({
    text: pieces ? token.replace(/^▁/, "") || "▁" : token,
    rest: pieces && !token.startsWith("▁"),
  }));
}

function draw(model, map, { place, readout, strongest }) {
  const [rows, columns] = map.size;
  const of = { attention: ["target", "source"], source: ["source", "source"], target: ["target", "target"], memory: ["memory", "memory"] };
  const [down, across] = of[map.kind].map((name) => labels(model[name]));
  const levels = Uint8Array.from(atob(map.levels), (letter) => letter.charCodeAt(0));
  const weight = (i, j) => levels[i * columns + j] / 255 * map.most;
  const width = (all) => Math.min(130, 12 + 7 * Math.max(...all.map(({ text }) => text.length)));
  const left = width(down), above = width(across);
  const room = (place.clientWidth || 600) - left - 4;
  const size = Math.max(13, Math.min(24, Math.floor(room / columns)));
  const svg = shape("svg", { width: left + columns * size + 2, height: above + rows * size + 2, role: "img",
    "aria-label": `${map.title}: ${rows} rows, ${columns} columns; the strongest weights are below as text` });
  const cut = (text) => text.length > 17 ? `${text.slice(0, 16)}…` : text;
  down.forEach(({ text, rest }, i) => svg.append(shape("text",
    { x: left - 6, y: above + i * size + size / 2 + 4, "text-anchor": "end", class: rest ? "rest" : "" }, cut(text))));
  across.forEach(({ text, rest }, j) => svg.append(shape("text",
    { transform: `translate(${left + j * size + size / 2 + 4} ${above - 6}) rotate(-90)`, class: rest ? "rest" : "" }, cut(text))));
  for (let i = 0; i < rows; i++)
    for (let j = 0; j < columns; j++)
      if (levels[i * columns + j])
        svg.append(shape("rect", { x: left + j * size, y: above + i * size, width: size - 1, height: size - 1,
          "fill-opacity": (levels[i * columns + j] / 255).toFixed(3) }));
  svg.append(shape("rect", { x: left - .5, y: above - .5, width: columns * size, height: rows * size, class: "frame" }));
  const here = shape("rect", { width: size + 1, height: size + 1, class: "here", visibility: "hidden" });
  svg.append(here);
  const name = map.kind === "attention" ? "attends to" : "remembers";
  const rest = `Weights from 0 to ${map.most.toFixed(3)}. Rows: ${map.kind === "attention" ? "target, columns: source" : "states after each token, columns: tokens"}.`;
  readout.textContent = rest;
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const j = Math.floor((event.clientX - box.left - left) / size), i = Math.floor((event.clientY - box.top - above) / size);
    const inside = i >= 0 && j >= 0 && i < rows && j < columns;
    here.setAttribute("visibility", inside ? "visible" : "hidden");
    if (!inside) return;
    here.setAttribute("x", left + j * size - 1);
    here.setAttribute("y", above + i * size - 1);
    readout.textContent = `${down[i].text} ${name} ${across[j].text}: ${weight(i, j).toFixed(3)}`;
  });
  svg.addEventListener("pointerleave", () => { here.setAttribute("visibility", "hidden"); readout.textContent = rest; });
  place.replaceChildren(svg);
  strongest.replaceChildren(...down.map(({ text }, i) => {
    const order = across.map((_, j) => j).sort((a, b) => weight(i, b) - weight(i, a)).slice(0, 2);
    return make("li", {}, `${text}: ${order.map((j) => `${across[j].text} ${weight(i, j).toFixed(2)}`).join(", ")}`);
  }));
}

// ---- Keys and clicks

/* Go to a row of the view, scrolling as far as needed. */
function goTo(at) {
  current = Math.max(0, Math.min(view.length - 1, at));
  const top = list.getBoundingClientRect().top + offsets[current], bottom = list.getBoundingClientRect().top + offsets[current + 1];
  const covered = getComputedStyle(byId("tools")).position === "sticky" ? byId("tools").offsetHeight : 0;
  if (top < covered) scrollBy({ top: top - covered - 8, behavior: "instant" });
  else if (bottom > innerHeight) scrollBy({ top: Math.min(bottom - innerHeight + 8, top - covered - 8), behavior: "instant" });
  render();
  nodes.get(view[current])?.focus({ preventScroll: true });
}

list.addEventListener("keydown", (event) => {
  if (!event.target.classList.contains("row")) {
    if (event.key === "Escape") event.target.closest(".row")?.focus({ preventScroll: true });
    return;
  }
  const moves = { ArrowDown: current + 1, ArrowUp: current - 1, Home: 0, End: view.length - 1 };
  if (event.key in moves) goTo(moves[event.key]);
  else if (event.key === "Enter" || event.key === " ") toggle(Number(event.target.dataset.place));
  else return;
  event.preventDefault();
});
list.addEventListener("focusin", (event) => {
  const node = event.target.closest(".row");
  if (!node) return;
  const at = view.indexOf(Number(node.dataset.place));
  if (at < 0 || at === current) return;
  nodes.get(view[current])?.setAttribute("tabindex", "-1");
  current = at;
  node.tabIndex = 0;
});
list.addEventListener("click", (event) => {
  const node = event.target.closest(".row");
  if (!node || event.target.closest(".panel") || String(getSelection())) return;
  toggle(Number(node.dataset.place));
});
addEventListener("scroll", soon, { passive: true });
let lastWidth = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== lastWidth) {
    lastWidth = innerWidth;
    heights.fill(0);
    open.forEach((panel) => panel?.isConnected && panel.draw());
    layOut();
  }
  soon();
});
setUp();
update();
