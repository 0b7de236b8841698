// The model card: what it is, what it was trained on, how good it is, how to call it.

import { bytes, count, h, percent, s } from "./dom.js";

const METHODS = {
  "one-vs-all": "One linear classifier per label, each solved to a verified tolerance.",
  "pd-sparse": "Few weights per label, found by a primal-dual method.",
  memoir: "One label per row; rows look for their hardest rivals.",
  mach: "A few small classifiers over hashed groups of labels.",
};
const COLUMNS = ["overall", "head", "torso", "tail"];

export function cardView({ model, details }) {
  const figures = [
    ["labels", count(details.labels)],
    ["features", count(details.features)],
    ["weights", count(details.weights)],
    ["on disk", bytes(details.bytes)],
    ["reads", details.texts ? "texts" : "rows of numbers"],
    ["answers", details.probabilities ? "probabilities" : "scores"],
    ...Object.entries(details.data).map(([name, value]) => [name, typeof value === "number" ? count(value) : value]),
  ];
  return {
    content: [
      h("div", { class: "head-row" }, h("h1", {}, model), h("span", { class: "soft small" }, "version ", h("code", {}, details.version))),
      h("section", { class: "card", "aria-label": "Facts" },
        h("p", {}, h("strong", {}, details.method), ". ", METHODS[details.method] ?? ""),
        h("dl", { class: "figures" }, figures.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))))),
      details.metrics && metricsCard(details.metrics),
      h("div", { class: "two" },
        details.frequency_curve && h("section", { class: "card" }, h("h2", {}, "How often labels occur"), frequencies(details.frequency_curve, details.bands)),
        details.reliability && h("section", { class: "card" }, h("h2", {}, "How far probabilities can be trusted"), reliability(details.reliability)),
        h("section", { class: "card" }, h("h2", {}, "Training"), facts(details.training_facts)),
        Object.keys(details.parameters).length > 0 && h("section", { class: "card" }, h("h2", {}, "Parameters"), facts(Object.fromEntries(Object.entries(details.parameters).map(([name, value]) => [name, String(value ?? "none")]))))),
      h("section", { class: "card spaced" }, h("h2", {}, "Ask this model from a program"), usage(model, details)),
    ],
  };
}

function facts(pairs) {
  return h("dl", { class: "facts" }, Object.entries(pairs).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

function metricsCard(metrics) {
  const named = Object.keys(metrics.overall).filter((name) => /^(P|nDCG|PSP|recall)@(1|3|5)$/.test(name));
  const value = (column, name) => (column === "overall" ? metrics.overall[name] : metrics.bands[column][name]);
  return h("section", { class: "card" },
    h("div", { class: "head-row" }, h("h2", {}, "Quality on test rows"), h("span", { class: "soft small" }, `${count(metrics.n_rows ?? metrics.rows ?? 0)} rows, per cent`)),
    h("div", { class: "two charts" }, bands(metrics, "P@1"), bands(metrics, "PSP@5")),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Metrics" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "metric"), COLUMNS.map((each) => h("th", { scope: "col", class: "number" }, each)))),
      h("tbody", {}, named.map((name) => h("tr", {}, h("th", { scope: "row" }, name), COLUMNS.map((each) => h("td", { class: "number" }, format(value(each, name))))))))),
    h("p", { class: "soft small" }, "Head, torso and tail: labels with more than 100, 11 to 100, and at most 10 training rows. P@k: the share of the k best labels that are right. PSP@k: the same, with rare labels counting more."));
}

const format = (value) => (value === null || value === undefined ? "–" : (100 * value).toFixed(1));

/** Bars of one metric: overall is the title, one bar per band. */
function bands(metrics, name) {
  const shown = ["head", "torso", "tail"].map((band) => [band, metrics.bands[band][name]]);
  const rows = shown.map(([band, value], i) => {
    const y = 14 + 34 * i;
    const width = 250 * (value ?? 0);
    return [
      s("text", { x: 52, y: y + 12, "text-anchor": "end" }, band),
      s("rect", { x: 60, y, width: Math.max(width, 1), height: 16, rx: 4, class: band }),
      s("text", { x: 68 + width, y: y + 12, class: "value" }, format(value)),
    ];
  });
  return h("figure", {}, h("h3", {}, `${name}: ${format(metrics.overall[name])} overall`),
    s("svg", { class: "chart", viewBox: "0 0 360 112", role: "img", "aria-label": `${name}: ${shown.map(([band, value]) => `${band} ${format(value)}`).join(", ")}` }, rows));
}

function frequencies(curve, counts) {
  const [width, height, left, bottom] = [380, 220, 54, 30];
  const most = Math.log10(Math.max(...curve.map(([, frequency]) => frequency), 10));
  const last = Math.log10(Math.max(curve.at(-1)[0], 10));
  const x = (rank) => left + ((width - left - 10) * Math.log10(rank)) / last;
  const y = (frequency) => height - bottom - ((height - bottom - 12) * Math.log10(Math.max(frequency, 1))) / most;
  const line = curve.map(([rank, frequency]) => `${x(rank).toFixed(1)},${y(frequency).toFixed(1)}`);
  const ticks = (upto) => Array.from({ length: Math.floor(upto) + 1 }, (_, i) => 10 ** i);
  return h("figure", {},
    s("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Training rows of labels by rank, from ${count(curve[0][1])} down to ${count(curve.at(-1)[1])}` },
      ticks(most).map((value) => [s("line", { class: "grid", x1: left, x2: width - 10, y1: y(value), y2: y(value) }), s("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, count(value))]),
      ticks(last).map((value) => s("text", { x: x(value), y: height - 8, "text-anchor": "middle" }, count(value))),
      s("polygon", { class: "area", points: `${x(1)},${height - bottom} ${line.join(" ")} ${x(curve.at(-1)[0])},${height - bottom}` }),
      s("polyline", { class: "curve", points: line.join(" ") })),
    h("figcaption", {}, `Training rows of each label, the most frequent first. ${count(counts.head)} labels are frequent, ${count(counts.torso)} medium, ${count(counts.tail)} rare.`));
}

function reliability({ predicted, observed, count: counts }) {
  const [size, left, bottom] = [220, 54, 30];
  const x = (value) => left + (380 - left - 24) * value;
  const y = (value) => size - bottom - (size - bottom - 10) * value;
  const most = Math.max(...counts);
  const points = predicted.map((value, i) => [value, observed[i], counts[i]]);
  return h("figure", {},
    s("svg", { class: "chart", viewBox: `0 0 380 ${size}`, role: "img", "aria-label": `Predicted and observed: ${points.map(([p, o]) => `${percent(p)} ${percent(o)}`).join("; ")}` },
      [0, 0.25, 0.5, 0.75, 1].map((value) => [
        s("line", { class: "grid", x1: x(0), x2: x(1), y1: y(value), y2: y(value) }),
        s("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, percent(value)),
        s("text", { x: x(value), y: size - 8, "text-anchor": "middle" }, percent(value))]),
      s("line", { class: "ideal", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }),
      s("polyline", { class: "curve", points: points.map(([p, o]) => `${x(p)},${y(o)}`).join(" ") }),
      points.map(([p, o, n]) => s("circle", { class: "point", cx: x(p), cy: y(o), r: 3 + 4 * Math.sqrt(n / most) }))),
    h("figcaption", {}, "Across: the probability that was predicted. Up: how often the label was right. On the dashed line both agree; larger points stand for more predictions."));
}

function usage(model, details) {
  const body = details.texts ? { texts: [details.examples[0] ?? "a text"], top_k: 3 } : { rows: [{ indices: [0], values: [1] }], top_k: 3 };
  const command = `curl ${location.origin}/v1/models/${model}/predict \\\n  -H 'Content-Type: application/json' \\\n  -d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`;
  const copied = h("span", { class: "soft small", role: "status" });
  return [
    h("pre", { tabindex: "0" }, command),
    h("p", { class: "buttons" },
      h("button", { class: "plain", type: "button", onclick: async () => { await navigator.clipboard.writeText(command); copied.textContent = "Copied."; } }, "Copy"),
      h("a", { class: "plain", href: "/docs" }, "All of the API"), copied),
  ];
}
