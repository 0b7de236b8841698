// Requests to the service that this page came from.

const KEY = "longtail-token";

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export async function call(path, { body, signal, raw } = {}) {
  const headers = {};
  const token = sessionStorage.getItem(KEY);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, {
      method: body === undefined ? "GET" : "POST", headers, signal, cache: "no-store",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (fault) {
    if (signal?.aborted) throw fault;
    throw new ApiError(0, "unreachable", "The service does not answer. Is it still running?");
  }
  if (answer.status === 401) {
    await askForToken();
    return call(path, { body, signal, raw });
  }
  if (raw) return answer;
  const said = await answer.json();
  if (!answer.ok) throw new ApiError(answer.status, said.error?.code, said.error?.message ?? "The service refused the request.");
  return said;
}

/** As `call`, but waits and tries again while the service is busy. */
export async function persist(path, options, tries = 6) {
  for (let wait = 250; ; wait = Math.min(2 * wait, 4000)) {
    try {
      return await call(path, options);
    } catch (fault) {
      if (fault.status !== 503 || --tries < 0) throw fault;
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

let asking = null;

function askForToken() {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("token-dialog");
    dialog.addEventListener("close", () => {
      sessionStorage.setItem(KEY, document.getElementById("token").value.trim());
      asking = null;
      resolve();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

const at = (model, rest = "") => `/v1/models/${encodeURIComponent(model)}${rest}`;

export const models = async () => (await call("/v1/models")).models;
const known = new Map();

/** What a model is made of; asked again when its version changes. */
export async function describe(model) {
  if (!known.has(model)) known.set(model, call(at(model)).catch((fault) => { known.delete(model); throw fault; }));
  return known.get(model);
}

export function noteVersion(model, version) {
  known.get(model)?.then((details) => { if (details.version !== version) known.delete(model); }).catch(() => {});
}

export async function predict(model, body, signal) {
  const said = await persist(at(model, "/predict"), { body, signal }, 3);
  noteVersion(model, said.version);
  return said;
}

export const explain = (model, body, signal) => call(at(model, "/explain"), { body, signal });
export const labels = (model, query, signal) => call(`${at(model, "/labels")}?${new URLSearchParams(query)}`, { signal });
