// Texts from files: JSON lines, CSV, or one text per line.

const NAMES = ["text", "body", "content", "title", "abstract", "description"];

/** Rows as objects, the names of their fields, and the field that is likely to be the text. */
export function parse(name, content) {
  const text = content.replace(/^\ufeff/, "");
  const kind = name.split(".").pop().toLowerCase();
  let rows;
  if (kind === "csv" || kind === "tsv") rows = fromCsv(text, kind === "tsv" ? "\t" : separator(text));
  else if (kind === "jsonl" || kind === "ndjson" || kind === "json") rows = fromJson(text);
  else rows = text.split(/\r?\n/).filter((line) => line.trim()).map((line) => ({ text: line }));
  if (!rows.length) throw new Error("This file holds no texts.");
  const columns = [...new Set(rows.slice(0, 100).flatMap((row) => Object.keys(row)))];
  return { rows, columns, guess: NAMES.find((each) => columns.includes(each)) ?? longest(rows, columns) };
}

function fromJson(text) {
  const trimmed = text.trim();
  const values = [];
  if (trimmed.startsWith("[")) {
    values.push(...JSON.parse(trimmed));
  } else {
    trimmed.split("\n").forEach((line, i) => {
      if (!line.trim()) return;
      try {
        values.push(JSON.parse(line));
      } catch {
        throw new Error(`Line ${i + 1} is not JSON: ${line.slice(0, 60)}`);
      }
    });
  }
  return values.map((value) => (typeof value === "string" ? { text: value } : value));
}

const separator = (text) => {
  const head = text.slice(0, text.indexOf("\n") + 1 || undefined);
  return [",", ";", "\t"].reduce((best, each) => (head.split(each).length > head.split(best).length ? each : best), ",");
};

/** RFC 4180: quotes may hold separators, line ends and doubled quotes. */
export function fromCsv(text, mark) {
  const lines = [];
  let line = [];
  let at = 0;
  while (at < text.length) {
    let value;
    if (text[at] === '"') {
      let end = at + 1;
      while ((end = text.indexOf('"', end)) >= 0 && text[end + 1] === '"') end += 2;
      if (end < 0) throw new Error(`A quote in line ${lines.length + 1} has no end.`);
      value = text.slice(at + 1, end).replaceAll('""', '"');
      at = end + 1;
    } else {
      let end = at;
      while (end < text.length && text[end] !== mark && text[end] !== "\n" && text[end] !== "\r") end += 1;
      value = text.slice(at, end);
      at = end;
    }
    line.push(value);
    if (text[at] === mark) {
      at += 1;
      if (at === text.length) line.push("");
      continue;
    }
    if (text[at] === "\r") at += 1;
    if (text[at] === "\n") at += 1;
    if (line.length > 1 || line[0] !== "") lines.push(line);
    line = [];
  }
  const [names = [], ...rest] = lines;
  return rest.map((values) => Object.fromEntries(names.map((name, i) => [name, values[i] ?? ""])));
}

function longest(rows, columns) {
  const mean = (name) => rows.slice(0, 50).reduce((sum, row) => sum + String(row[name] ?? "").length, 0);
  return columns.reduce((best, name) => (mean(name) > mean(best) ? name : best), columns[0]);
}
