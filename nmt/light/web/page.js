"use strict";
/* Translates what is typed, line by line, and shows which words attend to which. Translations come through `door` (door.js):
   open() tells { from, to, most, searches, languages, keeps, lives }, translate(lines, options, signal) the results, as the server's JSON
   has them, and live(heard) begins live sessions: say(message, isFirst) tells them words, heard(answer) what they write, or an error. */
const byId = (id) => document.getElementById(id);
const DELAY = 150; // ms without a key before the text is translated
const MOST_KNOWN = 500; // lines that are remembered
const UNSPACED = "\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}\\p{Script=Thai}"; // letters written without spaces
const CJK = new RegExp(`[${UNSPACED}]`, "u"), WORDS = new RegExp(`[${UNSPACED}]|[^\\s${UNSPACED}]+`, "gu");
const known = new Map(); // blocks by their line, so that only changed lines are translated
let timer, asked, isOpen = false, keepsText = false, most = 5; // translations of a line
let how = "", shown = ""; // the options of what is known, and all translations that are shown

function say(text, isBad = false) {
  byId("status").textContent = text;
  byId("status").classList.toggle("bad", isBad);
}

function element(name, kind, text = "") {
  const made = document.createElement(name);
  made.className = kind;
  made.textContent = text;
  return made;
}

/* The terms of the glossary with their translations, which an = or a tab separates; an Error names a line without one. */
function glossary() {
  const terms = new Map();
  byId("glossary").value.split("\n").forEach((line, i) => {
    if (!line.trim()) return;
    const [, term, target] = /^(.*?)[=\t](.*)$/.exec(line)?.map((part) => part.trim().replace(/\s+/g, " ")) ?? [];
    if (!term || !target) throw new Error(`Glossary, line ${i + 1}: ${line.trim()} is not a term, = and its translation.`);
    if ((terms.get(term) ?? target) !== target) throw new Error(`Glossary, line ${i + 1}: ${term} has two translations, ${terms.get(term)} and ${target}.`);
    terms.set(term, target);
  });
  byId("terms").textContent = terms.size ? `(${terms.size} ${terms.size > 1 ? "terms" : "term"})` : "";
  return terms.size ? { glossary: Object.fromEntries(terms) } : {};
}

const chosen = () => ({
  split: byId("split").value,
  ...(byId("placeholders").checked && { placeholders: true }),
  ...glossary(),
  ...(byId("search").value && { search: byId("search").value }),
  ...into(),
});

/* The language and domain that are chosen, where a model has several; a list entry is a language, or both as in "de+medical". */
const into = () => {
  const [target_language, domain = "none"] = byId("language").value.split("+");
  return target_language ? { target_language, domain } : {};
};

const linesOf = (text) => text.split("\n").filter((line) => line.trim());

/* Brings the output up to date; a newer text ends the request for an older one. */
async function update() {
  if (!isOpen) return;
  clearTimeout(timer);
  asked?.abort();
  if (byId("live").checked) {
    updateLive();
    return;
  }
  const mine = asked = new AbortController();
  const lines = linesOf(byId("text").value), start = performance.now();
  let options;
  try {
    options = chosen();
  } catch (error) {
    say(error.message, true);
    return;
  }
  if (JSON.stringify(options) !== how) known.clear();
  how = JSON.stringify(options);
  const missing = [...new Set(lines)].filter((line) => !known.has(line));
  byId("clear").hidden = !byId("text").value;
  if (missing.length) {
    const waits = setTimeout(() => { say("Translating"); byId("output").classList.add("old"); }, 400);
    try {
      const found = await door.translate(missing, { ...options, details: ["tokens", "attention"] }, mine.signal);
      missing.forEach((line, i) => known.set(line, block(line, found[i])));
      say(`${Math.round(performance.now() - start)} ms`);
    } catch (error) {
      if (mine !== asked) return;
      say(error.message, true);
      if (error.seconds) timer = setTimeout(update, 1000 * error.seconds);
      return;
    } finally {
      clearTimeout(waits);
      if (mine === asked) byId("output").classList.remove("old");
    }
    if (mine !== asked) return;
  }
  show(lines);
}

let session = null, sent = "", written = null, isFirst = true; // of the live mode: what has been sent, and the line that is written

function endLive() {
  session?.close();
  session = written = null;
  isFirst = true;
  sent = "";
}

/* Each line is a live session, whose words are translated as they are typed; after a change further back all is sent again. */
function updateLive() {
  const text = byId("text").value;
  byId("clear").hidden = !text;
  if (!session || !text.startsWith(sent)) {
    endLive();
    show([]);
    if (!text) return;
    byId("output").replaceChildren();
    session = door.live(heard);
  }
  const options = { wait: Math.max(1, Math.round(byId("wait").valueAsNumber) || 3), ...into() };
  text.slice(sent.length).split("\n").forEach((line, i) => {
    if (i && !isFirst) session.say({ end: true });
    isFirst ||= i > 0;
    if (!line) return;
    session.say({ text: line, ...(isFirst && options) }, isFirst);
    isFirst = false;
  });
  sent = text;
}

/* Shows what a live session has written, and behind it, in grey, what may still change. */
function heard({ text = "", tail = "", end, error, isOver }) {
  if (error) {
    say(error, error !== "Paused");
    if (isOver) session = null;
    return;
  }
  if (!written && (text || tail)) {
    const line = element("div", "line");
    line.append(written = element("div", "target"));
    written.append(element("span", ""), element("span", "tail"));
    written.lang = byId("output").lang;
    written.dir = "auto";
    byId("output").append(line);
  }
  if (written) {
    written.firstChild.textContent += text;
    written.lastChild.textContent = tail;
  }
  if (end) written = null;
  shown = [...byId("output").querySelectorAll(".target > :first-child")].map((span) => span.textContent).join("\n");
  byId("copy").hidden = !shown;
  say(end ? "" : "Live");
}

function show(lines) {
  shown = lines.map((line) => known.get(line).dataset.text).join("\n");
  const blocks = [...new Set(lines)].map((line) => known.get(line));
  const output = byId("output");
  if (!blocks.length) {
    output.replaceChildren(element("p", "hint", "Translations appear here while you type."));
    say("");
  } else if (blocks.length !== output.children.length || blocks.some((made, i) => made !== output.children[i])) {
    output.replaceChildren(...blocks);
    firstStop();
  }
  byId("copy").hidden = !blocks.length;
  for (const line of known.keys()) if (known.size > MOST_KNOWN && !lines.includes(line)) known.delete(line);
}

/* Words of a text, with the places of their pieces: { text, places, space }, `space` where one is before it. Pieces may stand
   for bytes, for what the vocabulary lacks, or for a placeholder: these are what is between the others. */
function wordsOf(pieces, text, isMarked) {
  const end = /^<.*>$/.test(pieces.at(-1)) ? pieces.at(-1) : null, found = [], begins = []; // in the text, of pieces
  let isOpen = false, at = 0, isLost = false;
  pieces.forEach((piece, place) => {
    if (piece === end) return;
    const own = isMarked ? piece.replaceAll("\u2581", "") : piece.replace(/@@$/, "");
    while (/\s/.test(text[at])) at++;
    const here = isLost && own ? text.indexOf(own, at) : !isLost && text.startsWith(own, at) ? at : -1;
    begins[place] = here < 0 ? at : here;
    isLost = here < 0;
    at = begins[place] + (isLost ? 0 : own.length);
    const space = isMarked ? piece.startsWith("\u2581") : !isOpen;
    isOpen = piece.endsWith("@@");
    let word = found.at(-1);
    if (!word || (word.text && (space || CJK.test(own) || CJK.test(word.text)))) found.push(word = { text: "", places: [], space });
    word.text += own;
    word.places.push(place);
  });
  const words = text.trim().split(/\s+/);
  if (words.length === found.length) return words.map((word, i) => ({ text: word, places: found[i].places, space: true }));
  const together = found.map((word, i) => (i && word.space ? " " : "") + word.text).join("");
  if (together === text.trim()) return found;
  const all = [...text.matchAll(WORDS)].map(({ 0: word, index }) => ({ text: word, places: [], space: /\s/.test(text[index - 1]), index }));
  let last = 0;
  begins.forEach((begin, place) => {
    while (all[last + 1]?.index <= begin) last++;
    all[last]?.places.push(place);
  });
  return all;
}

/* A line's translation, whose words show what they attend to, and what attends to them; of several sentences each shows
   which one it comes from, and the other way round. */
function block(line, result) {
  const made = element("div", "line"), target = element("div", "target"), source = element("div", "source");
  const weights = element("span", "weights"), below = element("div", "below");
  target.lang = byId("output").lang;
  source.lang = byId("text").lang;
  target.dir = source.dir = "auto";
  if (result.attention) {
    const isMarked = [...result.source_tokens, ...result.tokens].some((piece) => piece.startsWith("\u2581"));
    const from = wordsOf(result.source_tokens, line, isMarked), to = wordsOf(result.tokens, result.text, isMarked);
    const begins = result.attention_begins; // of a text in parts: the first source token that a row is about
    const sum = (places, value) => places.reduce((all, place) => all + value(place), 0);
    const weight = (t, s) => sum(t.places, (i) => sum(s.places, (k) => result.attention[i][k - (begins ? begins[i] : 0)] ?? 0)) / (t.places.length || 1);
    const table = to.map((t) => from.map((s) => Math.min(1, weight(t, s))));
    const starts = [...new Set(begins ?? result.begins)]; // of the parts, among the source tokens
    const link = (part) => made.querySelectorAll(".sentence").forEach((one) => one.classList.toggle("with", one.dataset.part === part));
    const named = (part) => `${(result.notes || []).includes("split") ? "part" : "sentence"} ${part + 1} of ${starts.length}`;
    const parts = starts.length > 1 && { named, link };
    const tops = spans(to, target, parts, (word) => starts.indexOf((begins ?? result.begins)[word.places[0]]));
    const bottoms = spans(from, source, parts, (word) => starts.filter((start) => start <= word.places[0]).length - 1);
    const mark = (chosen, others, values) => {
      made.querySelectorAll(".word").forEach((span) => { span.classList.remove("on"); span.style.removeProperty("--weight"); });
      chosen.classList.add("on");
      others.forEach((span, i) => span.style.setProperty("--weight", values[i].toFixed(3)));
      const most = others.map((span, i) => [values[i], span.textContent]).sort((a, b) => b[0] - a[0]);
      const { part } = chosen.parentElement.dataset, where = part ? [named(Number(part))] : [];
      if (part) link(part);
      const attended = most.slice(0, 3).filter(([value]) => value >= .05).map(([value, word]) => `${word}\u00a0${Math.round(100 * value)}\u00a0%`);
      weights.textContent = `${chosen.textContent}: ${[attended.join(", ") || "attends to nothing in particular", ...where].join("; ")}`;
      chosen.setAttribute("aria-description", [...attended, ...where].join(", "));
    };
    tops.forEach((span, i) => onChoice(span, () => mark(span, bottoms, table[i])));
    bottoms.forEach((span, k) => onChoice(span, () => mark(span, tops, table.map((row) => row[k]))));
  } else {
    target.textContent = result.text;
    source.textContent = line;
  }
  const others = element("button", "", "Other translations");
  others.type = "button";
  others.setAttribute("aria-expanded", "false");
  others.addEventListener("click", () => toggleOthers(made, others, line));
  below.append(weights, others);
  made.append(target, source, ...notes(result), below);
  made.dataset.text = result.text;
  return made;
}

/* A span for each word; with `parts`, where there are several, in one for each part, whose number `partOf` tells. */
function spans(words, into, parts, partOf) {
  let around = into;
  return words.map((word, i) => {
    const span = element("span", "word", word.text), part = parts && word.places.length ? String(partOf(word)) : around.dataset.part;
    span.tabIndex = -1;
    span.setAttribute("role", "button");
    if (part !== around.dataset.part) {
      if (i && word.space) into.append(" ");
      around = element("span", "sentence");
      around.dataset.part = part;
      around.setAttribute("role", "group");
      around.setAttribute("aria-label", parts.named(Number(part)));
      around.addEventListener("mouseenter", () => parts.link(part));
      into.append(around);
    } else if (i && word.space) around.append(" ");
    around.append(span);
    return span;
  });
}

function onChoice(span, choose) {
  for (const event of ["mouseenter", "focus", "click"]) span.addEventListener(event, choose);
}

function notes(result) {
  const texts = {
    no_finite_translation: "The model has no translation for this line.",
    length_limit: "Stopped at the limit of its length.",
    split: "Translated in parts.",
    several_sentences: "Has several sentences, but was translated as a whole.",
    capitals: "Translated by its small letters.",
    longer_than_training: "Longer than what the model was trained on.",
    unlike_training: "Unlike the text that the model was trained on.",
  };
  return (result.notes || []).filter((note) => texts[note]).map((note) => element("p", "note", texts[note]));
}

/* Shows or hides the next best translations of a line, which a beam search finds the first time: the usual search may
   find only one. */
async function toggleOthers(made, button, line) {
  let list = made.querySelector("ol");
  if (!list) {
    try {
      const [found] = await door.translate([line], { ...chosen(), n_best: most, search: "beam" });
      list = element("ol", "");
      list.lang = byId("output").lang;
      const others = found.n_best.filter(({ text }) => text !== found.text);
      if (!others.length) list.append(element("li", "", "none"));
      for (const { text } of others) {
        const item = element("li", "", text);
        item.dir = "auto";
        list.append(item);
      }
      list.hidden = true;
      made.append(list);
    } catch (error) {
      say(error.message, true);
      return;
    }
  }
  list.hidden = !list.hidden;
  button.setAttribute("aria-expanded", String(!list.hidden));
  button.textContent = list.hidden ? "Other translations" : "Hide";
}

const allWords = () => [...byId("output").querySelectorAll(".word")];

/* One stop for Tab, arrow keys from there. */
function firstStop() {
  const words = allWords();
  words.forEach((word, i) => { word.tabIndex = i ? -1 : 0; });
}

async function copy() {
  try {
    await navigator.clipboard.writeText(shown);
  } catch { // not allowed where the connection is not encrypted
    const area = document.body.appendChild(element("textarea", ""));
    area.value = shown;
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say("Copied");
}

const languageName = (code) => {
  const [language, domain] = code.split("+");
  if (domain) return `${languageName(language)}, ${domain}`;
  try { return new Intl.DisplayNames(["en"], { type: "language" }).of(code); } catch { return code; }
};

async function start() {
  let found;
  try {
    found = await door.open();
  } catch (error) {
    say(error.message, true);
    if (error.seconds) setTimeout(start, 1000 * error.seconds);
    return;
  }
  const { from, to, searches = [], languages = [], keeps, lives } = found;
  isOpen = true;
  most = Math.min(most, found.most);
  byId("output").classList.toggle("single", most < 2);
  byId("search").replaceChildren(...searches.map(([name, value]) => new Option(name, value)));
  byId("how").hidden = !searches.length;
  byId("language").replaceChildren(...languages.map((code) => new Option(languageName(code), code)));
  byId("into").hidden = !languages.length;
  keepsText = keeps;
  byId("kept").hidden = !keeps;
  byId("lives").hidden = !lives;
  if (from && to) {
    byId("from").textContent = languageName(from);
    byId("to").textContent = languageName(to);
    document.title = `${languageName(from)} to ${languageName(to)}`;
    byId("title").textContent = document.title;
    byId("text").lang = from;
    byId("output").lang = to;
  }
  say("Ready");
  if (byId("text").value) update(); // what the browser kept, or was typed meanwhile
}

byId("output").addEventListener("keydown", (event) => {
  const words = allWords(), place = words.indexOf(event.target);
  const next = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: words.length - 1 }[event.key];
  if (place < 0 || !words[next]) return;
  event.target.tabIndex = -1;
  words[next].tabIndex = 0;
  words[next].focus();
  event.preventDefault();
});
for (const name of ["text", "glossary"]) byId(name).addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(update, byId("live").checked ? 0 : DELAY);
});
for (const name of ["live", "wait", "language"]) byId(name).addEventListener("change", () => {
  byId("kept").hidden = byId("live").checked || !keepsText;
  endLive();
  update();
});
for (const name of ["split", "search", "placeholders"]) byId(name).addEventListener("change", update);
byId("clear").addEventListener("click", () => {
  byId("text").value = "";
  byId("text").focus();
  update();
});
byId("copy").addEventListener("click", copy);
start();
