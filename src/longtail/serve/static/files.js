// A file of texts in, predictions out: read, sent in portions, and offered for download.

import { predict } from "./api.js";
import { announce, count, dropZone, error, h, replace, seconds } from "./dom.js";
import { parse } from "./tables.js";

const PORTION = 64;
const AT_ONCE = 2;
const PREVIEW = 8;
const MOST = 200_000_000; // bytes

export function filesView({ model, details }) {
  if (!details.texts) return { content: h("p", { class: "card empty" }, `The model ${model} was trained on rows of numbers. Use longtail predict, or the API.`) };
  const input = h("input", { type: "file", hidden: true, id: "file", accept: ".jsonl,.ndjson,.json,.csv,.tsv,.txt,text/*" });
  const zone = h("section", { class: "drop", "aria-label": "Choose a file" },
    icon(),
    h("h2", {}, "Drop a file of texts here"),
    h("p", { class: "soft" }, "JSON lines with a field text, CSV with a header, or plain text with one text per line. It is sent to this server only, in portions."),
    h("button", { class: "primary", type: "button", onclick: () => input.click() }, "Choose a file"), input);
  const work = h("div", {});
  let stop = null;

  async function take(file) {
    stop?.();
    zone.classList.add("small");
    if (file.size > MOST) {
      replace(work, error(new Error("This file is too large for a browser. Use: longtail predict MODEL FILE")));
      return;
    }
    try {
      replace(work, prepared(file, parse(file.name, await file.text())));
    } catch (fault) {
      replace(work, error(fault));
    }
  }

  function prepared(file, table) {
    const column = table.columns.length > 1
      ? h("label", {}, "Column with the text", h("select", { id: "column" }, table.columns.map((name) => h("option", { value: name, selected: name === table.guess }, name))))
      : null;
    const top = h("label", {}, "Labels per text", h("select", { id: "top-k" }, [1, 3, 5, 10, 20].map((k) => h("option", { value: k, selected: k === 5 }, String(k)))));
    const begin = h("button", { class: "primary", type: "button", onclick: () => run(file, table, column?.querySelector("select").value ?? table.guess, Number(top.querySelector("select").value)) }, "Predict");
    return h("section", { class: "card" },
      h("h2", {}, file.name, " ", h("span", { class: "soft" }, `${count(table.rows.length)} ${table.rows.length === 1 ? "text" : "texts"}`)),
      h("div", { class: "options" }, column, top), h("p", { class: "buttons" }, begin));
  }

  async function run(file, table, column, k) {
    const texts = table.rows.map((row) => String(row[column] ?? ""));
    const found = new Array(texts.length);
    const controller = new AbortController();
    stop = () => controller.abort();
    const bar = h("progress", { max: texts.length, value: 0, "aria-label": "Texts done" });
    const told = h("p", { class: "soft small numbers" }, "Starting …");
    const cancel = h("button", { class: "plain", type: "button", onclick: () => controller.abort() }, "Stop");
    replace(work, h("section", { class: "card" }, h("h2", {}, file.name), bar, told, h("p", { class: "buttons" }, cancel)));
    const began = performance.now();
    let done = 0;
    let next = 0;
    async function worker() {
      while (next < texts.length && !controller.signal.aborted) {
        const start = next;
        next += PORTION;
        const said = await predict(model, { texts: texts.slice(start, start + PORTION), top_k: k, details: true }, controller.signal);
        said.predictions.forEach((each, i) => { found[start + i] = each; });
        done += said.predictions.length;
        const spent = (performance.now() - began) / 1000;
        bar.value = done;
        told.textContent = `${count(done)} of ${count(texts.length)} · ${count(Math.round(done / spent))} texts per second · ${seconds(((texts.length - done) * spent) / done)} left`;
      }
    }
    try {
      await Promise.all(Array.from({ length: AT_ONCE }, worker));
    } catch (fault) {
      if (!controller.signal.aborted) { controller.abort(); replace(work, error(fault)); return; }
    }
    if (controller.signal.aborted) { replace(work, prepared(file, table)); return; }
    stop = null;
    announce(`${count(texts.length)} texts are done.`);
    replace(work, finished(file, texts, found, (performance.now() - began) / 1000));
  }

  function finished(file, texts, found, spent) {
    const base = file.name.replace(/\.[^.]*$/, "");
    const shown = texts.slice(0, PREVIEW).map((text, i) => h("tr", {},
      h("td", {}, text.length > 160 ? `${text.slice(0, 160)} …` : text),
      h("td", {}, found[i].labels.slice(0, 3).map((name, j) => h("div", {}, h("span", { class: "name" }, String(name)), " ", found[i].titles?.[j] ?? "")))));
    return h("section", { class: "card" },
      h("div", { class: "head-row" }, h("h2", {}, `${count(texts.length)} predictions`), h("span", { class: "soft small numbers" }, `in ${seconds(spent)}`)),
      h("p", { class: "buttons" },
        h("button", { class: "primary", type: "button", onclick: () => save(`${base}-predictions.csv`, "text/csv", asCsv(texts, found)) }, "Download CSV"),
        h("button", { class: "plain", type: "button", onclick: () => save(`${base}-predictions.jsonl`, "application/x-ndjson", asLines(texts, found)) }, "Download JSON lines")),
      h("h3", {}, texts.length > PREVIEW ? `The first ${PREVIEW}` : "Predictions"),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Predictions" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "text"), h("th", { scope: "col" }, "labels"))), h("tbody", {}, shown))));
  }

  input.addEventListener("change", () => { if (input.files[0]) take(input.files[0]); input.value = ""; });
  dropZone(zone, take);
  return { content: [h("div", { class: "head-row" }, h("h1", {}, "Files")), zone, h("div", { class: "after" }, work)], leave: () => stop?.() };
}

function icon() {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [name, value] of Object.entries({ viewBox: "0 0 24 24", width: 40, height: 40, fill: "none", stroke: "currentColor", "stroke-width": 1.6, "stroke-linecap": "round", "stroke-linejoin": "round", "aria-hidden": "true" })) svg.setAttribute(name, value);
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", "M12 15V4m0 0L8 8m4-4 4 4M4 15v3a2 2 0 0 0 2 2h12a2 2 0 0 0 2-2v-3");
  svg.append(path);
  return svg;
}

function save(name, type, text) {
  const link = h("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Cells that a spreadsheet would take for a formula are quoted with an apostrophe. */
const cell = (value) => {
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

function asCsv(texts, found) {
  const most = Math.max(...found.map((each) => each.labels.length), 1);
  const header = ["text", ...Array.from({ length: most }, (_, i) => [`label_${i + 1}`, `score_${i + 1}`]).flat()];
  const lines = texts.map((text, i) => [text, ...found[i].labels.flatMap((name, j) => [name, (found[i].probabilities ?? found[i].scores)[j]])]);
  return [header, ...lines].map((line) => line.map(cell).join(",")).join("\r\n") + "\r\n";
}

function asLines(texts, found) {
  return texts.map((text, i) => JSON.stringify({ text, labels: found[i].labels, scores: found[i].scores, ...(found[i].probabilities && { probabilities: found[i].probabilities }) })).join("\n") + "\n";
}
