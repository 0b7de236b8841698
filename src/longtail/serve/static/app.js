// The views and the choice of the model. The address keeps both: #labels?model=demo

import { models, describe } from "./api.js";
import { error, h, replace } from "./dom.js";
import { cardView } from "./card.js";
import { filesView } from "./files.js";
import { labelsView } from "./labels.js";
import { tryView } from "./try.js";

const VIEWS = { try: ["Try", tryView], labels: ["Labels", labelsView], files: ["Files", filesView], model: ["Model", cardView] };
const main = document.getElementById("main");
const picker = document.getElementById("model-picker");
const root = document.documentElement;
let served = [];
let leave = null;

function place() {
  const [view, query] = location.hash.slice(1).split("?");
  const chosen = new URLSearchParams(query).get("model");
  const model = served.some((each) => each.name === chosen) ? chosen : served[0]?.name;
  return { view: view in VIEWS ? view : "try", model, label: new URLSearchParams(query).get("label") };
}

function address(view, model) {
  return served.length > 1 ? `#${view}?model=${encodeURIComponent(model)}` : `#${view}`;
}

async function show(moved) {
  const { view, model, label } = place();
  const [title, make] = VIEWS[view];
  document.title = `${title} · ${model} · longtail`;
  picker.value = model;
  for (const link of document.querySelectorAll(".tabs a")) {
    const name = link.getAttribute("href").slice(1).split("?")[0];
    link.setAttribute("href", address(name, model));
    if (name === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  leave?.();
  leave = null;
  try {
    const details = await describe(model);
    const made = make({ model, details, served, label });
    leave = made.leave ?? null;
    replace(main, made.content);
    if (moved) main.focus({ preventScroll: true });
  } catch (fault) {
    replace(main, error(fault));
  }
}

async function start() {
  const theme = localStorage.getItem("longtail-theme");
  if (theme) root.dataset.theme = theme;
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("longtail-theme", root.dataset.theme);
  });
  try {
    served = await models();
  } catch (fault) {
    replace(main, error(fault));
    return;
  }
  replace(picker, served.map(({ name }) => h("option", { value: name }, name)));
  picker.addEventListener("change", () => { location.hash = address(place().view, picker.value); });
  addEventListener("hashchange", () => show(true));
  await show(false);
}

start();
