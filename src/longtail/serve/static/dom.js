// Elements, numbers and small helpers. Text is always set as text, never as markup: names and texts are strangers'.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function replace(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
}

export const count = (number) => number.toLocaleString("en");
export const signed = (number) => (number < 0 ? "−" : "+") + Math.abs(number).toFixed(2);
export const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)} %`;

export function bytes(number) {
  for (const [unit, scale] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (number >= scale) return `${(number / scale).toFixed(1)} ${unit}`;
  }
  return `${number} bytes`;
}

export function seconds(number) {
  if (number < 60) return `${Math.max(1, Math.round(number))} s`;
  const minutes = Math.floor(number / 60);
  return minutes < 60 ? `${minutes} min ${Math.round(number % 60)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

let announced = 0;

/** Say something to readers of the screen, at most about once a second. */
export function announce(text) {
  clearTimeout(announced);
  announced = setTimeout(() => { document.getElementById("status").textContent = text; }, 900);
}

export function error(fault) {
  return h("p", { class: "error", role: "alert" }, fault.message);
}

/** Call `task` when nothing has happened for a while; the signal of an outdated call is aborted. */
export function debounce(task, wait) {
  let timer = 0;
  let controller = null;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      controller?.abort();
      controller = new AbortController();
      const { signal } = controller;
      try {
        await task(signal, ...args);
      } catch (fault) {
        if (!signal.aborted) throw fault;
      }
    }, wait);
  };
}

export function dropZone(element, onFile) {
  const stop = (event) => { event.preventDefault(); element.classList.add("dropping"); };
  element.addEventListener("dragenter", stop);
  element.addEventListener("dragover", stop);
  element.addEventListener("dragleave", () => element.classList.remove("dropping"));
  element.addEventListener("drop", (event) => {
    element.classList.remove("dropping");
    const [file] = event.dataTransfer.files;
    if (file) { event.preventDefault(); onFile(file); }
  });
}
