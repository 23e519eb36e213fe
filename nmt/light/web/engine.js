/* The engine in WebAssembly, for a page or for node: what nmt_engine.h declares, called for one line at a time. */
"use strict";

const NMT = (() => {
  const ROOM = 1000; // bytes of a message
  const WITHOUT = ["threads"]; // options of nmt_options that make no difference here
  const SEARCHES = { auto: {}, beam: { beam_of_one: 1 }, greedy: { beam_size: 1 }, sample: { sample: 1 } }; // what each sets
  const SAMPLING = ["temperature", "top_k", "top_p", "seed"]; // search_options
  const INNER = [...SAMPLING, "sample", "beam_of_one"]; // options of nmt_options that follow from these
  const CUT = 1, NOT_FINITE = 2, SEVERAL = 4, CAPITALS = 8;
  const ASKED = ["text", "prefix", "forbidden"]; // the fields of nmt_request
  const WORDS = { split: ["auto", "sentences", "none"], capitals: ["keep", "lower"], length_normalization: ["gnmt", "power"] }; // values of options, in the engine's order

  const oneLine = (text) => text.replace(/[\r\n]/g, " ");

  /* A phrase with its letters composed and decomposed, and with its first one in the other case. */
  function spelled(phrase) {
    return [phrase, phrase.normalize("NFC"), phrase.normalize("NFD")].flatMap((form) => {
      const [first, ...rest] = form.trim().split(/\s+/).join(" ");
      return [first, first === first.toLowerCase() ? first.toUpperCase() : first.toLowerCase()].map((one) => one + rest.join(""));
    });
  }

  class Session {
    constructor(engine, handle) { Object.assign(this, { engine, handle }); }

    feed(text) {
      const [place, size] = this.engine.copied(text);
      try {
        return this.written("nmt_live_feed", place, size);
      } finally {
        this.engine.c.free(place);
      }
    }

    end() { return this.written("nmt_live_end"); }

    get tail() { return this.handle ? this.engine.text(this.engine.c.nmt_live_tail(this.handle, this.engine.size)) : ""; }

    close() {
      this.engine.c.nmt_live_close(this.handle);
      this.handle = 0;
    }

    written(name, ...given) {
      const { c, size, problem } = this.engine, found = this.handle && c[name](this.handle, ...given, size, problem, ROOM);
      if (!found) throw new Error(this.handle ? this.engine.said() : "this session has ended");
      return this.engine.text(found);
    }
  }

  class Engine {
    /* `code`: the bytes of nmt.wasm.gz, also where a server has unpacked them; `model`: those of a model file. An Error has
       the line that the engine says. */
    static async open(code, model) {
      if (new Uint8Array(code)[0] === 0x1f) {
        const unpacked = new Blob([code]).stream().pipeThrough(new DecompressionStream("gzip"));
        code = await new Response(unpacked).arrayBuffer();
      }
      const { instance } = await WebAssembly.instantiate(code, {});
      return new Engine(instance.exports, model);
    }

    constructor(c, model) {
      this.c = c;
      c._initialize();
      const place = c.aligned_alloc(64, Math.ceil(model.length / 64) * 64);
      if (!place) throw new Error("not enough memory for the model");
      new Uint8Array(c.memory.buffer, place, model.length).set(model);
      this.problem = c.malloc(ROOM);
      this.glossary = 0; // in use, and its lines
      this.size = c.malloc(4);
      this.options = c.malloc(c.nmt_options_size());
      this.request = c.malloc(8 * ASKED.length); // of each text its address and its size
      this.model = c.nmt_open_memory(place, model.length, 0, this.problem, ROOM);
      if (!this.model) throw new Error(this.said());
      this.names = new Map(); // of options, to where the engine keeps them
      for (let place; (place = c.nmt_option_name(this.names.size));) this.names.set(this.string(place), place);
      c.nmt_options_begin(this.model, this.options);
      this.defaults = Object.fromEntries([...this.names].map(([name, place]) => [name, c.nmt_option(this.options, place)]));
      for (const name of WITHOUT) this.names.delete(name);
      this.languages = new Map(); // codes of target languages, to their source tokens
      for (let i = 0, id; (id = c.nmt_language(this.model, i)); i++) this.languages.set(this.piece(0, id).replace("\u2581", "").slice(2, -2), id);
      this.card = JSON.parse(this.text(c.nmt_card(this.model, 0, this.size)) || "{}");
    }

    /* What becomes of a line. Options are those that docs/decoding_options.md has for engine.js, `attention` and `entropies`,
       by these names; true, false and "none" are 1, 0 and 0 (but options in WORDS have words); `forbidden` is a phrase or a
       list of phrases, `search_options` an object, `glossary` an object of terms and their translations, or the text of a file. `n_best` are the translations, best first, `source` and `target` the
       pieces of the best, `ids` those of the target, `entropies` those of their distributions, `attention` a row for each
       target piece, over the source pieces, and `begins` for each target piece the place of the first source piece of the
       sentence, or part, that it belongs to. */
    translate(line, options = {}) {
      const { c } = this, { prefix = "", forbidden = [], glossary = "none", ...others } = options;
      const { attention, entropies } = this.choose({ attention: 1, ...others });
      this.useGlossary(glossary);
      const phrases = [forbidden].flat();
      if (!phrases.every((phrase) => phrase.trim())) throw new Error("forbidden: a phrase is empty");
      const texts = { text: oneLine(line), prefix: oneLine(prefix), forbidden: phrases.flatMap(spelled).join("\n") };
      const places = ASKED.map((name, i) => {
        const [place, size] = this.copied(texts[name]);
        [place, size].forEach((number, k) => this.view().setUint32(this.request + 8 * i + 4 * k, number, true));
        return place;
      });
      const found = c.nmt_translate_requests(this.model, this.request, 1, this.options, this.problem, ROOM);
      for (const place of places) c.free(place);
      if (!found) throw new Error(this.said().replace(/^line 0: /, ""));
      try {
        return this.collected(found, attention, entropies);
      } finally {
        c.nmt_free(found);
      }
    }

    /* Has the terms of a glossary found; that of the last call is kept. */
    useGlossary(terms) {
      const { c } = this, columns = (term, target) => ` ${oneLine(term).replace(/\t/g, " ")}\t${oneLine(target).replace(/\t/g, " ")}`;
      const lines = typeof terms === "string" ? terms : Object.entries(terms).map((pair) => columns(...pair)).join("\n");
      if (lines === "none" || lines !== this.lines) {
        c.nmt_glossary_close(this.glossary);
        [this.glossary, this.lines] = [0, undefined];
      }
      if (lines !== "none" && !this.glossary) {
        const [place, size] = this.copied(lines);
        this.glossary = c.nmt_glossary_open(this.model, place, size, this.problem, ROOM);
        c.free(place);
        if (!this.glossary) throw new Error(`glossary: ${this.said()}`);
        this.lines = lines;
      }
      c.nmt_set_glossary(this.options, this.glossary);
    }

    /* Sets the options; an Error names one that there is not, or whose value is not allowed. */
    choose({ search = "auto", search_options = {}, ...given }) {
      const { c } = this, { domain, ...options } = { ...SEARCHES[search], ...given, ...search_options };
      const allowed = ["search", "search_options", "glossary", "domain", ...this.names.keys()].filter((name) => !INNER.includes(name));
      for (const name of Object.keys(given))
        if (!allowed.includes(name)) throw new Error(`${name}: is not an option of the engine in a browser. Allowed: ${allowed.join(", ")}.`);
      for (const name of Object.keys(search_options))
        if (search !== "sample" || !SAMPLING.includes(name)) throw new Error(`search_options: ${name}: is not an option of this search. The search sample has: ${SAMPLING.join(", ")}.`);
      if (!SEARCHES[search]) throw new Error(`search: ${search} is not known. Allowed: ${Object.keys(SEARCHES).join(", ")}.`);
      if (domain !== undefined || options.target_language !== undefined) options.target_language = this.languageToken(options.target_language, domain);
      c.nmt_options_begin(this.model, this.options);
      for (const [name, value] of Object.entries(options)) {
        const place = this.names.get(name);
        const number = name === "target_language" ? value : WORDS[name] ? WORDS[name].indexOf(value) : value === "none" ? 0 : Number(value);
        if (!c.nmt_set_option(this.options, place, number, this.problem, ROOM)) throw new Error(this.said());
      }
      if (!("beam_size" in options || options.sample)) { // a smaller beam is widened
        const wanted = c.nmt_option(this.options, this.names.get("n_best"));
        if (wanted > this.defaults.beam_size) c.nmt_set_option(this.options, this.names.get("beam_size"), wanted, this.problem, ROOM);
      }
      return options;
    }

    /* The token of a language and a domain, of which one that is not given is the usual one; 0 for "none". */
    languageToken(target_language, domain) {
      const codes = [...this.languages.keys()], parts = (code) => [...code.split("+"), ""].slice(0, 2);
      const [usual, own] = parts(codes.find((code) => this.languages.get(code) === this.defaults.target_language) ?? "");
      const asked = target_language ?? usual, [language, from] = parts(asked);
      const chosen = domain ?? (from || own), last = chosen === "none" ? from : chosen;
      if ((asked === "none" || !asked) && (codes.length || !last)) return 0;
      const found = this.languages.get(last ? `${language}+${last}` : language);
      if (found !== undefined && (!from || last === from)) return found;
      const known = codes.filter((code) => parts(code)[0] === language).map((code) => parts(code)[1] || "none");
      const name = known.length || !asked ? "domain" : "target_language";
      const all = [...new Set(name === "domain" ? known : codes.map((code) => parts(code)[0]))];
      throw new Error(`${name}: ${(name === "domain" ? last : asked) || "none"} is not allowed. Allowed: ${all.join(", ") || "none"}.`);
    }

    /* A session of live translation (docs/live.md) by a policy such as "wait_k,wait=3": `feed(text)` returns what no longer changes, `end()` the
       rest, `tail` is what may follow, `close()` gives the memory back. With options, those of `translate`, each word has the sentence
       translated anew. */
    live(how = this.card.encoder_direction === "forward" ? "wait_k" : "local_agreement", { glossary = "none", ...options } = {}) {
      const { c } = this, isPlain = !Object.keys(options).length && glossary === "none";
      this.choose(options);
      this.useGlossary(glossary);
      const [place] = this.copied(`${how}\0`), handle = c.nmt_live_open(this.model, place, isPlain ? 0 : this.options, this.problem, ROOM);
      c.free(place);
      if (!handle) throw new Error(this.said());
      return new Session(this, handle);
    }

    collected(found, attention, entropies) {
      const { c } = this, flags = c.nmt_flags(found, 0), parts = c.nmt_parts(found, 0);
      const result = {
        text: this.text(c.nmt_text(found, 0, 0, this.size)), score: c.nmt_score(found, 0, 0), parts,
        sentences: c.nmt_sentences(found, 0), several: !!(flags & SEVERAL), capitals: !!(flags & CAPITALS), cut: !!(flags & CUT), finite: !(flags & NOT_FINITE), source: [], target: [], ids: [], entropies: [], attention: [], begins: [], n_best: [],
      };
      for (let i = 0; i < c.nmt_count(found, 0); i++)
        result.n_best.push({ text: this.text(c.nmt_text(found, 0, i, this.size)), score: c.nmt_score(found, 0, i) });
      for (let part = 0; part < parts && result.finite; part++) {
        const source = this.integers(c.nmt_source_ids(found, 0, part, this.size));
        const ids = this.integers(c.nmt_ids(found, 0, 0, part, this.size));
        const rows = attention ? new Float32Array(c.memory.buffer, c.nmt_attention(found, 0, 0, part), ids.length * source.length) : [];
        if (entropies) result.entropies.push(...new Float32Array(c.memory.buffer, c.nmt_entropies(found, 0, 0, part), ids.length));
        const before = result.source.length;
        for (let row = 0; row < ids.length && attention; row++)
          result.attention.push([...new Array(before).fill(0), ...rows.subarray(row * source.length, (row + 1) * source.length)]);
        result.source.push(...source.map((id) => this.piece(0, id)));
        result.target.push(...ids.map((id) => this.piece(1, id)));
        result.ids.push(...ids);
        result.begins.push(...ids.map(() => before));
      }
      for (const row of result.attention) while (row.length < result.source.length) row.push(0);
      return result;
    }

    /* The place and the size of a text in the engine's memory, to be freed. */
    copied(text) {
      const bytes = new TextEncoder().encode(text), place = this.c.malloc(bytes.length + 1);
      new Uint8Array(this.c.memory.buffer, place, bytes.length).set(bytes);
      return [place, bytes.length];
    }

    /* Memory moves when it grows, so that views last for a call only. */
    view() { return new DataView(this.c.memory.buffer); }

    /* What a function has returned whose last argument was `this.size`. */
    text(place) {
      return place ? new TextDecoder().decode(new Uint8Array(this.c.memory.buffer, place, this.view().getUint32(this.size, true))) : "";
    }

    integers(place) { return [...new Int32Array(this.c.memory.buffer, place, this.view().getUint32(this.size, true))]; }

    piece(target, id) { return this.text(this.c.nmt_piece(this.model, target, id, this.size)); }

    said() { return this.string(this.problem); }

    /* A text that ends with a 0. */
    string(place) {
      const bytes = new Uint8Array(this.c.memory.buffer, place, ROOM);
      return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
    }
  }

  return { Engine };
})();

if (typeof module !== "undefined") module.exports = NMT;
