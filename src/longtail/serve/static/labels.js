// Find a label; see how frequent it is, how often it is found, and what it listens to.

import { labels } from "./api.js";
import { announce, count, debounce, error, h, percent, replace, signed } from "./dom.js";

const STEP = 40;
const BANDS = [["", "all"], ["head", "frequent"], ["torso", "medium"], ["tail", "rare"]];

export function labelsView({ model, details, label }) {
  const search = h("input", { type: "search", id: "label-search", placeholder: "Name or title", autocomplete: "off", spellcheck: "false" });
  const sort = h("select", { id: "label-sort", "aria-label": "Order" },
    details.bands && h("option", { value: "frequency" }, "Most frequent"), h("option", { value: "name" }, "By name"),
    details.metrics && h("option", { value: "quality" }, "Best found"));
  const total = h("p", { class: "soft small numbers", role: "status" });
  const list = h("ul", { class: "rows" });
  const more = h("button", { class: "plain", type: "button", hidden: true, onclick: () => load(true) }, "Show more");
  const detail = h("section", { class: "card detail", "aria-live": "polite", "aria-label": "The chosen label" },
    h("p", { class: "empty" }, "Choose a label to see its strongest words."));
  let band = "";
  let shown = 0;
  let chosen = null;

  const chips = details.bands && h("ul", { class: "chips", "aria-label": "Frequency" }, BANDS.map(([key, name]) => h("li", {},
    h("button", { class: "chip", type: "button", "data-band": key, "aria-pressed": String(key === band), onclick: () => choose(key) },
      key && h("i", { class: `dot ${key}` }), key ? " " : "",
      key ? `${name} ${count(details.bands[key])}` : `${name} ${count(details.labels)}`))));

  function choose(key) {
    band = key;
    for (const each of chips.querySelectorAll("button")) each.setAttribute("aria-pressed", String(each.dataset.band === key));
    load(false);
  }

  async function load(further, signal) {
    const query = { q: search.value.trim(), sort: sort.value, offset: further ? shown : 0, limit: STEP };
    if (band) query.band = band;
    try {
      const said = await labels(model, query, signal);
      if (!further) replace(list, header());
      list.append(...said.labels.map(row));
      shown = query.offset + said.labels.length;
      more.hidden = shown >= said.total;
      total.textContent = `${count(said.total)} ${said.total === 1 ? "label" : "labels"}`;
      if (!said.total) replace(list, h("li", { class: "empty" }, "No label has this in its name or title."));
    } catch (fault) {
      if (!signal?.aborted) replace(list, h("li", {}, error(fault)));
    }
  }

  function header() {
    return h("li", { class: "row titles" }, h("span"), h("span", {}, "label"), h("span", { class: "right" }, details.bands && "training rows"), h("span", { class: "right quality" }, details.metrics && "found"));
  }

  function row(each) {
    return h("li", {}, h("button", { class: "row", type: "button", "aria-pressed": "false", onclick: (event) => open(each.label, event.currentTarget) },
      h("i", { class: `dot ${each.band ?? ""}`, title: each.band ?? "" }),
      h("span", { class: "what" }, h("span", { class: "name" }, String(each.label)), " ", each.title ?? ""),
      h("span", { class: "right" }, each.frequency === null ? "" : count(each.frequency)),
      h("span", { class: "right quality" }, each.quality === null ? "" : percent(each.quality))));
  }

  async function open(name, button) {
    chosen = name;
    for (const each of list.querySelectorAll("[aria-pressed=true]")) each.setAttribute("aria-pressed", "false");
    button?.setAttribute("aria-pressed", "true");
    try {
      const said = await labels(model, { label: name });
      if (chosen !== name) return;
      replace(detail, about(said));
      announce(`Label ${name}`);
      if (matchMedia("(max-width: 60rem)").matches) detail.scrollIntoView({ block: "nearest" });
    } catch (fault) {
      replace(detail, error(fault));
    }
  }

  const ask = debounce((signal) => load(false, signal), 120);
  search.addEventListener("input", ask);
  sort.addEventListener("change", () => load(false));
  load(false);
  if (label) open(label, null);
  return {
    content: [
      h("div", { class: "head-row" }, h("h1", {}, "Labels"), total),
      h("div", { class: "browse" },
        h("section", { class: "card", "aria-label": "All labels" },
          h("div", { class: "filters" },
            h("div", {}, h("label", { class: "hidden", for: "label-search" }, "Search labels"), search), sort),
          chips, list, h("p", { class: "buttons" }, more)),
        detail),
    ],
  };
}

function about(said) {
  const most = Math.max(...said.strongest.map(([, weight]) => Math.abs(weight)), 1e-9);
  const figures = [
    ["training rows", said.frequency === null ? null : count(said.frequency)],
    ["band", said.band && { head: "frequent (head)", torso: "medium (torso)", tail: "rare (tail)" }[said.band]],
    ["found among 5 best", said.quality === null ? (said.frequency === null ? null : "not in the test rows") : percent(said.quality)],
    ["column", count(said.column)],
  ].filter(([, value]) => value !== null);
  return [
    h("h2", {}, h("span", { class: "name" }, String(said.label)), " ", said.title ?? ""),
    h("dl", { class: "figures" }, figures.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    h("h3", {}, "Strongest words"),
    said.strongest.length
      ? h("ul", { class: "words" }, said.strongest.slice(0, 20).map(([word, weight]) => h("li", { class: weight < 0 ? "against" : "" },
        h("span", { class: "word" }, word),
        h("span", { class: "track" }, h("i", { "--w": `${(100 * Math.abs(weight)) / most}%` })),
        h("span", { class: "number" }, signed(weight)))))
      : h("p", { class: "soft" }, "This label has no weights; it cannot be found."),
  ];
}
