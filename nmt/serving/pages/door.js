"use strict";
/* The page's door to translations: the server that it comes from, which may ask for a key. */
const door = (() => {
  const byId = (id) => document.getElementById(id);
  let key = "";

  function failure(message, seconds) {
    return Object.assign(new Error(message), { seconds });
  }

  /* The answer to a request and its JSON; an error has `seconds` where one should try again after that time. */
  async function asked(path, options) {
    try {
      const answer = await fetch(path, options);
      return [answer, await answer.json()];
    } catch (error) {
      if (options?.signal?.aborted) throw error;
      throw failure("The server does not answer.", path === "health" ? 3 : 0); // or another one does, in its place
    }
  }

  async function open() {
    const [, health] = await asked("health");
    if (health.status !== "ready") throw failure(`The server is ${health.status}.`, 1);
    const [from, to] = [health.source_language, health.target_language].map((code) => (code === "?" ? "" : code));
    const keeps = ["glossary", "placeholders"].every((name) => health.keys.includes(name));
    return { from, to, most: health.max_beam_size, languages: health.languages, keeps };
  }

  async function translate(text, options, signal) {
    const headers = { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
    const [answer, found] = await asked("translate", { method: "POST", headers, body: JSON.stringify({ text, ...options }), signal });
    if (answer.ok) return found.translations;
    if (answer.status === 401) {
      byId("access").hidden = false;
      byId("key").focus();
      throw failure(key ? "The key is not right." : "A key is needed.");
    }
    throw failure(found.error, answer.status === 503 ? Number(answer.headers.get("Retry-After")) || 1 : 0);
  }

  byId("access").addEventListener("submit", (event) => {
    event.preventDefault();
    key = byId("key").value.trim();
    byId("access").hidden = true;
    byId("key").value = "";
    byId("text").focus();
    byId("text").dispatchEvent(new Event("input"));
  });
  const link = document.createElement("a");
  link.href = "docs";
  link.textContent = "How programs use this server";
  byId("about").append(link);
  return { open, translate };
})();
