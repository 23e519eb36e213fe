"use strict";
/* The page's door to translations: the engine in this browser (engine.js), with the model beside the page. */
const door = (() => {
  const byId = (id) => document.getElementById(id);
  let engine;

  /* The bytes of a file beside the page; `heard` is told the share of it that has come, where its size is known. */
  async function fetched(name, heard) {
    const answer = await fetch(name);
    if (!answer.ok) throw new Error(`${name}: ${answer.status} ${answer.statusText}`);
    const total = Number(answer.headers.get("Content-Length")), parts = [];
    let size = 0;
    for (const reader = answer.body.getReader(); ;) {
      const { done, value } = await reader.read();
      if (done) return new Uint8Array(await new Blob(parts).arrayBuffer());
      parts.push(value);
      size += value.length;
      if (total >= size) heard?.(size / total);
    }
  }

  function loaded(name) {
    const script = Object.assign(document.createElement("script"), { src: name });
    return new Promise((go, stop) => {
      Object.assign(script, { onload: go, onerror: () => stop(new Error(`${name}: cannot be loaded`)) });
      document.head.append(script);
    });
  }

  async function open() {
    byId("progress").hidden = false;
    try {
      if (location.protocol === "file:")
        throw new Error("browsers load no files beside a page that is a file itself; in its folder run: python3 -m http.server");
      await loaded("engine.js");
      const code = await fetched("nmt.wasm.gz");
      engine = await NMT.Engine.open(code, await fetched("model.nmt", (share) => { byId("progress").value = share; }));
    } catch (error) {
      throw new Error(`Cannot start: ${error.message}`);
    } finally {
      byId("progress").hidden = true;
    }
    const own = engine.defaults.beam_size, beam = own > 1 ? own : 5;
    const searches = [["greedy, fastest", "greedy"], [`beam ${beam}`, ""]];
    return { from: engine.card.source_language, to: engine.card.target_language, most: 5, lives: true, searches: own > 1 ? searches.reverse() : searches, languages: [...engine.languages.keys()], keeps: true };
  }

  /* A line at a time: the page answers keys in between, and a newer text ends it. */
  async function translate(lines, { split, search, target_language, domain, n_best = 1, placeholders = false, glossary = "none" }, signal) {
    const own = engine.defaults.beam_size, beam = search === "greedy" ? 1 : Math.max(own > 1 ? own : 5, n_best), found = [];
    for (const line of lines) {
      if (found.length) await new Promise((go) => setTimeout(go));
      signal?.throwIfAborted();
      const result = engine.translate(line, { split, n_best, beam_size: beam, scores: false, placeholders, glossary, ...(target_language && { target_language, domain }) });
      const notes = { no_finite_translation: !result.finite, length_limit: result.cut, split: result.parts > result.sentences, several_sentences: result.several, capitals: result.capitals };
      found.push({
        text: result.text, n_best: result.n_best, tokens: result.target, source_tokens: result.source, attention: result.attention, begins: result.begins,
        notes: Object.keys(notes).filter((name) => notes[name]),
      });
    }
    return found;
  }

  /* Live sessions; `heard` is told what each writes, and what may follow. */
  function live(heard) {
    let session;
    const say = ({ text, end, wait, target_language, domain }, isFirst) => {
      try {
        const how = engine.card.encoder_direction === "forward" ? `wait_k,wait=${wait}` : "local_agreement";
        if (isFirst) session = engine.live(how, target_language && { target_language, domain });
        const written = end ? session.end() : session.feed(text);
        heard({ text: written, tail: session.tail, end });
        if (end) session.close();
      } catch (error) {
        heard({ error: error.message, isOver: true });
      }
    };
    return { say, close: () => session?.close() };
  }

  byId("about").textContent = "Everything is computed on this device: what you type is sent nowhere.";
  return { open, translate, live };
})();
