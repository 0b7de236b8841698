// Write a text, see its labels; choose a label, see its words. With a second model: both side by side.

import { describe, explain, predict } from "./api.js";
import { announce, count, debounce, dropZone, error, h, percent, replace, signed } from "./dom.js";

const TOP = 10;
const WORDS = 12;
const TYPING = 60; // milliseconds
const STORE = "longtail-text";
const BANDS = { head: "frequent", torso: "medium", tail: "rare" };

export function tryView({ model, details, served }) {
  if (!details.texts) {
    return { content: h("p", { class: "card empty" }, `The model ${model} was trained on rows of numbers, so it cannot read texts. See the view Model for how to send rows.`) };
  }
  const rivals = served.filter((each) => each.texts && each.name !== model);
  const area = h("textarea", {
    id: "text", "aria-describedby": "text-hint", spellcheck: "false",
    placeholder: "Write or paste a text here, or drop a file …",
  });
  const mirror = h("div", { class: "mirror", "aria-hidden": "true" });
  const editor = h("div", { class: "editor" }, mirror, area);
  const timing = h("span", { class: "numbers" });
  const length = h("span", {}, "Nothing leaves this server.");
  const first = panel(model, details, area, mirror);
  let second = null;

  const compare = rivals.length
    ? h("select", { id: "compare" }, h("option", { value: "" }, "no other model"), rivals.map(({ name }) => h("option", { value: name }, name)))
    : null;
  const examples = details.examples.length
    ? h("div", { class: "examples" },
      h("h3", {}, "Examples"),
      h("ul", { class: "chips" }, details.examples.map((text) => h("li", {},
        h("button", { class: "chip", type: "button", onclick: () => { area.value = text; changed(); area.focus(); } }, text)))))
    : null;
  const writing = h("section", { class: "card writing" },
    h("div", { class: "head-row" },
      h("h2", {}, h("label", { for: "text" }, "Text")),
      h("button", { class: "quiet small", type: "button", onclick: () => { area.value = ""; changed(); area.focus(); } }, "Clear")),
    editor,
    h("p", { class: "under", id: "text-hint" }, length, timing),
    examples,
    compare && h("p", { class: "compare-row" }, h("label", { for: "compare" }, "Compare with"), compare));
  const content = h("div", { class: "try" }, h("h1", { class: "hidden" }, "Try the model"), writing, first.element);

  const ask = debounce(async (signal) => {
    const text = area.value;
    const begin = performance.now();
    const shown = [first, second].filter(Boolean);
    const lists = await Promise.all(shown.map((each) => each.update(text, signal)));
    if (second) markCommon(lists);
    timing.textContent = text.trim() ? `${Math.max(1, Math.round(performance.now() - begin))} ms` : "";
  }, TYPING);

  function changed() {
    sessionStorage.setItem(STORE, area.value);
    const words = area.value.split(/\s+/).filter(Boolean).length;
    length.textContent = words ? `${count(words)} ${words === 1 ? "word" : "words"}` : "Nothing leaves this server.";
    first.forget();
    second?.forget();
    ask();
  }

  function markCommon(lists) {
    const common = new Set(lists[0].filter((name) => lists[1].includes(name)));
    for (const each of [first, second]) each.mark(common);
  }

  area.addEventListener("input", changed);
  area.addEventListener("scroll", () => { mirror.scrollTop = area.scrollTop; });
  dropZone(editor, async (file) => { area.value = (await file.text()).slice(0, 200_000); changed(); });
  compare?.addEventListener("change", async () => {
    second?.element.remove();
    second = null;
    content.classList.toggle("comparing", Boolean(compare.value));
    if (compare.value) {
      second = panel(compare.value, await describe(compare.value), area, mirror);
      content.append(second.element);
    } else {
      first.mark(new Set());
    }
    ask();
  });
  area.value = sessionStorage.getItem(STORE) ?? details.examples[0] ?? "";
  if (area.value) changed();
  else first.update("", null);
  return { content };
}

/** The labels that one model finds. */
function panel(model, details, area, mirror) {
  const list = h("ol", { class: "results" });
  const body = h("div", {}, list);
  const legend = details.bands
    ? h("p", { class: "legend" }, Object.entries(BANDS).map(([band, meaning]) => h("span", {}, h("i", { class: `dot ${band}` }), meaning)))
    : h("p", { class: "legend" }, details.probabilities ? "probabilities" : "scores");
  const element = h("section", { class: "card", "aria-label": `Labels by ${model}` },
    h("div", { class: "head-row" }, h("h2", {}, "Labels ", h("span", { class: "soft" }, `by ${model}`)), legend), body);
  let open = null; // the label that is being explained

  async function update(text, signal) {
    if (!text.trim()) {
      replace(body, h("p", { class: "empty" }, "Labels appear here as you write."));
      replace(mirror);
      return [];
    }
    try {
      const said = await predict(model, { texts: text, top_k: TOP, details: true }, signal);
      const [found] = said.predictions;
      draw(found);
      if (body.firstChild !== list) replace(body, list);
      if (open !== null) await show(open, signal, true);
      const best = found.labels[0];
      announce(best === undefined ? "No label." : `Best label: ${best} ${found.titles?.[0] ?? ""}`);
      return found.labels;
    } catch (fault) {
      if (signal?.aborted) throw fault;
      replace(body, error(fault));
      return [];
    }
  }

  function draw(found) {
    const values = found.probabilities ?? found.scores;
    const width = barWidths(values, Boolean(found.probabilities));
    const focused = document.activeElement?.dataset?.label;
    replace(list, found.labels.map((name, i) => {
      const band = found.bands?.[i] ?? "";
      const button = h("button", {
        class: "result", type: "button", "data-label": name, "aria-expanded": String(name === open),
        onclick: () => show(name === open ? null : name),
      },
      h("span", { class: "line" },
        h("span", { class: "name" }, String(name)),
        h("span", { class: "title" }, found.titles?.[i] ?? ""),
        h("span", { class: "both", hidden: true }, "both"),
        h("span", { class: "value" }, found.probabilities ? percent(values[i]) : signed(values[i]))),
      h("span", { class: `bar ${band}` }, h("i", { "--w": percent(width[i], 1).replace(" ", "") })));
      return h("li", { "data-label": name }, button);
    }));
    if (focused !== undefined) item(focused)?.querySelector("button").focus();
  }

  function item(name) {
    return [...list.children].find((each) => each.dataset.label === String(name));
  }

  async function show(name, signal = null, quiet = false) {
    open = name;
    for (const each of list.querySelectorAll(".result")) each.setAttribute("aria-expanded", String(each.dataset.label === String(name)));
    list.querySelector(".why")?.remove();
    replace(mirror);
    if (name === null) return;
    const place = item(name);
    if (!place) { open = null; return; }
    try {
      const said = await explain(model, { text: area.value, label: name, top: 40 }, signal);
      if (open !== name) return;
      list.querySelector(".why")?.remove();
      place.append(why(said));
      highlight(mirror, area, said.explanation.contributions);
      if (!quiet) announce(`The words behind ${name}: ${said.explanation.contributions.slice(0, 3).map((each) => each.feature).join(", ")}`);
    } catch (fault) {
      if (!signal?.aborted) place.append(h("div", { class: "why" }, error(fault)));
    }
  }

  function mark(common) {
    for (const each of list.children) {
      const note = each.querySelector(".both");
      if (note) note.hidden = ![...common].some((name) => String(name) === each.dataset.label);
    }
  }

  return { element, update, mark, forget: () => replace(mirror) };
}

function barWidths(values, probabilities) {
  if (probabilities) return values.map((value) => Math.min(1, Math.max(0, value)));
  const low = Math.min(-1, ...values);
  const high = Math.max(...values, low + 1);
  return values.map((value) => (value - low) / (high - low));
}

/** The words of the text that made the score, and the strongest words of the label. */
function why({ explanation, strongest }) {
  const shares = explanation.contributions.slice(0, WORDS);
  const most = Math.max(...shares.map((each) => Math.abs(each.contribution)), Math.abs(explanation.bias), 1e-9);
  const line = (word, value) => h("li", { class: value < 0 ? "against" : "" },
    h("span", { class: "word" }, word),
    h("span", { class: "track" }, h("i", { "--w": `${(100 * Math.abs(value)) / most}%` })),
    h("span", { class: "number" }, signed(value)));
  const peak = Math.max(...strongest.map(([, weight]) => Math.abs(weight)), 1e-9);
  return h("div", { class: "why" },
    h("h3", {}, `Words of this text, score ${signed(explanation.score)}`),
    shares.length
      ? h("ul", { class: "words" }, shares.map((each) => line(each.feature, each.contribution)), explanation.bias ? line("(bias)", explanation.bias) : null)
      : h("p", { class: "soft small" }, "No word of this text has a weight for this label."),
    h("h3", {}, "Strongest words of this label"),
    h("div", { class: "strong" }, strongest.slice(0, 16).map(([word, weight]) => h("span", {
      class: weight < 0 ? "against" : "", "--p": `${Math.round(15 + (85 * Math.abs(weight)) / peak)}%`, title: signed(weight),
    }, word))));
}

/** Colour the words behind the text area. Spans count characters, JavaScript counts UTF-16 units. */
function highlight(mirror, area, contributions) {
  const characters = Array.from(area.value);
  const most = Math.max(...contributions.map((each) => Math.abs(each.contribution)), 1e-9);
  const spans = contributions
    .flatMap((each) => each.spans.map(([start, end]) => ({ start, end, share: each.contribution })))
    .sort((a, b) => a.start - b.start || b.end - a.end);
  const parts = [];
  let at = 0;
  for (const { start, end, share } of spans) {
    if (start < at) continue; // within a longer term
    parts.push(characters.slice(at, start).join(""));
    parts.push(h("mark", { class: share < 0 ? "against" : "", "--p": `${Math.round(20 + (80 * Math.abs(share)) / most)}%` }, characters.slice(start, end).join("")));
    at = end;
  }
  parts.push(characters.slice(at).join(""), "\n");
  replace(mirror, parts);
  mirror.scrollTop = area.scrollTop;
}
