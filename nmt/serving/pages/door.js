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
    return { from, to, most: health.max_beam_size, languages: health.languages, keeps, lives: health.live };
  }

  function needsKey() {
    byId("access").hidden = false;
    byId("key").focus();
    return key ? "The key is not right." : "A key is needed.";
  }

  async function translate(text, options, signal) {
    const headers = { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
    const [answer, found] = await asked("translate", { method: "POST", headers, body: JSON.stringify({ text, ...options }), signal });
    if (answer.ok) return found.translations;
    if (answer.status === 401) throw failure(needsKey());
    throw failure(found.error, answer.status === 503 ? Number(answer.headers.get("Retry-After")) || 1 : 0);
  }

  /* A WebSocket for live sessions; `heard` is told each answer, with `error` when there are no more. */
  function live(heard) {
    const place = new URL("live", location.href), waiting = [];
    place.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(place);
    let last = "The server takes no live session now.";
    socket.onopen = () => waiting.splice(0).forEach((message) => socket.send(message));
    socket.onmessage = ({ data }) => {
      const answer = JSON.parse(data);
      if (!answer.error) heard(answer);
      else if (answer.status !== 400) last = answer.status === 401 ? needsKey() : answer.status === 408 ? "Paused" : answer.error;
      else heard(answer);
    };
    socket.onclose = () => heard({ error: last, isOver: true });
    const say = (message, isFirst) => {
      const text = JSON.stringify({ ...message, ...(isFirst && key && { key }) });
      if (socket.readyState === WebSocket.OPEN) socket.send(text);
      else waiting.push(text);
    };
    return { say, close: () => { socket.onclose = socket.onmessage = null; socket.close(); } };
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
  return { open, translate, live };
})();
