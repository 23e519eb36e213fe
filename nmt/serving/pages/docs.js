"use strict";
/* Shows what openapi.json says. */
function element(name, text = "") {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}

function list(pairs) {
  const made = document.createElement("dl");
  for (const [name, meaning] of pairs) made.append(element("dt", name), element("dd", meaning));
  return made;
}

function curl(path, method, example) {
  const base = new URL(path.slice(1), new URL(".", location.href)).href;
  if (method === "GET") return `curl ${base}`;
  return `curl ${base} \\\n  -H 'Content-Type: application/json' \\\n  -d '${JSON.stringify(example)}'`;
}

function call(path, method, operation) {
  const made = document.createElement("article");
  made.append(element("h2", `${method} ${path}`), element("p", operation.summary));
  const schema = operation.requestBody?.content["application/json"].schema;
  made.append(element("pre", curl(path, method, schema?.examples?.[0])));
  if (schema) {
    made.append(element("h3", "Keys of the request"));
    const required = schema.required || [];
    made.append(list(Object.entries(schema.properties).map(([name, { description, ["x-allowed"]: allowed }]) => {
      const whole = description.includes(allowed) ? description : `${description}: ${allowed}`;
      return [name, required.includes(name) ? `${whole} (required)` : whole];
    })));
  }
  made.append(element("h3", "Statuses"));
  made.append(list(Object.entries(operation.responses).map(([status, { description }]) => [status, description])));
  return made;
}

async function start() {
  const calls = document.getElementById("calls");
  const { paths } = await (await fetch("openapi.json")).json();
  for (const [path, methods] of Object.entries(paths))
    for (const [method, operation] of Object.entries(methods))
      if (method !== "head") calls.append(call(path, method.toUpperCase(), operation));
}

start();
