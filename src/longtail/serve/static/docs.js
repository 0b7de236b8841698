// The API, made of openapi.json: every example can be run as it stands.

import { call } from "./api.js";
import { error, h, replace } from "./dom.js";

const main = document.getElementById("main");

function operation(path, method, about) {
  const parameters = (about.parameters ?? []).filter((each) => each.in === "path");
  const address = parameters.reduce((text, each) => text.replace(`{${each.name}}`, encodeURIComponent(each.example)), path);
  const url = h("input", { type: "text", id: `url-${about.operationId}`, value: address, spellcheck: "false" });
  const [media, content] = Object.entries(about.requestBody?.content ?? {})[0] ?? [];
  const examples = content && (content.examples ?? { example: { summary: "Example", value: content.example } });
  const form = media === "application/x-www-form-urlencoded";
  const spell = (value) => (form ? new URLSearchParams(value).toString() : JSON.stringify(value, null, 2));
  const body = examples && h("textarea", { id: `body-${about.operationId}`, spellcheck: "false" });
  if (body) body.value = spell(Object.values(examples)[0].value);
  const answer = h("div", { "aria-live": "polite" });
  const curl = h("pre", { tabindex: "0" });

  function draw() {
    const more = body ? ` \\\n  -H 'Content-Type: ${media}' \\\n  -d '${(form ? body.value : squeeze(body.value)).replaceAll("'", "'\\''")}'` : "";
    curl.textContent = `curl ${location.origin}${url.value}${more}`;
  }

  async function run() {
    const began = performance.now();
    try {
      const options = form ? { method: "POST", headers: { "Content-Type": media }, body: body.value } : null;
      const said = options ? await fetch(url.value, options) : await call(url.value, { raw: true, ...(body && { body: JSON.parse(body.value) }) });
      const text = await said.text();
      replace(answer, h("p", { class: "soft small" }, `${said.status} in ${Math.round(performance.now() - began)} ms`), h("pre", { tabindex: "0" }, pretty(text)));
    } catch (fault) {
      replace(answer, error(fault));
    }
  }

  url.addEventListener("input", draw);
  body?.addEventListener("input", draw);
  draw();
  return h("details", { class: "card operation", id: about.operationId },
    h("summary", {}, h("span", { class: `verb ${method}` }, method.toUpperCase()), h("code", {}, path), h("span", { class: "soft" }, about.summary)),
    about.description && h("p", {}, about.description),
    h("label", { for: url.id }, "Address"), url,
    body && [
      h("label", { for: body.id }, "Body"),
      Object.keys(examples).length > 1 && h("ul", { class: "chips" }, Object.values(examples).map((each) => h("li", {}, h("button", { class: "chip", type: "button", onclick: () => { body.value = spell(each.value); draw(); } }, each.summary)))),
      body],
    h("p", { class: "buttons" }, h("button", { class: "primary", type: "button", onclick: run }, "Run")),
    curl, answer);
}

const squeeze = (text) => { try { return JSON.stringify(JSON.parse(text)); } catch { return text; } };
const pretty = (text) => { try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; } };

try {
  const about = await call("/openapi.json");
  const operations = Object.entries(about.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, each]) => operation(path, method, each)));
  operations[2]?.setAttribute("open", "");
  replace(main, h("h1", {}, "API"), h("p", { class: "soft" }, about.info.description, " Every example runs as it stands."), operations);
} catch (fault) {
  replace(main, error(fault));
}
