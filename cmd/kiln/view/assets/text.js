const data = JSON.parse(document.getElementById("data").textContent);
const str = (i) => data.strings[i];

// el makes an element: attributes by name, texts and elements as children.
function el(tag, attrs, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs || {})) {
    if (v !== undefined && v !== false) e.setAttribute(k, v === true ? "" : v);
  }
  e.append(...children);
  return e;
}

const byId = (id) => document.getElementById(id);

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return (i === 0 ? n : n.toPrecision(n < 100 ? 3 : 4)) + " " + units[i];
}

function count(n) {
  const units = ["", "k", "M", "G", "T"];
  let i = 0;
  while (n >= 1000 && i < units.length - 1) { n /= 1000; i++; }
  return i === 0 ? String(n) : n.toPrecision(3) + " " + units[i];
}

const micros = (us) => us < 0 ? "-" : us < 100 ? us.toPrecision(3) : us.toFixed(0);

// Kinds of lines, marks and fields, as the page's maker has them.
const DECL = 0, OP = 1, OUT = 2, TEXT = 3, REMARK = 4, GONE = 5;
const MARK = ["", "new", "changed"], SIGN = ["  ", "+ ", "~ "];

// shown are the columns that have cells.
const shown = data.columns.filter((c) => c.cells);
shown.forEach((c, i) => { c.index = i; });

// numbersOf maps the values of a column to their numbers in its text.
function numbersOf(c) {
  if (!c.numbers) {
    c.numbers = new Map();
    for (const cell of c.cells) {
      for (const l of cell) {
        if (l[0] === OP) l[2].forEach((v, i) => c.numbers.set(v, l[1] + i));
      }
    }
  }
  return c.numbers;
}

function valueName(c, v) {
  if (data.names[v]) return data.names[v];
  const n = numbersOf(c).get(v);
  return n === undefined ? "" : "%" + n;
}

// nameAnywhere is the name of a value in the first column that has it.
function nameAnywhere(v) {
  for (const c of shown) {
    const name = valueName(c, v);
    if (name) return name;
  }
  return "";
}

// tokens are the parts of a line: [text, class] or [name of a value, "v", value].
function tokens(c, l) {
  const value = (v) => [valueName(c, v), "v", v];
  switch (l[0]) {
    case DECL:
      return [[str(l[1]) + " "], value(l[2]), [" : " + str(l[3]), "soft"]];
    case OUT:
      return [[str(l[1]) + " = "], value(l[2])];
    case TEXT:
      return [[str(l[1])]];
    case REMARK:
      return [[str(l[1]), "kind"], [" " + str(l[3]) + ": " + str(l[2])]];
  }
  const from = l[0] === GONE ? shown[c.index - 1] : c;
  const out = [];
  l[2].forEach((v, i) => out.push([i ? ", " : ""], ["%" + (l[1] + i), "v", v]));
  out.push([" = "], [str(l[3]), "op"]);
  l[4].forEach((v, i) => out.push([i ? ", " : " "], [valueName(from, v), "v", v]));
  if (str(l[5])) out.push([" " + str(l[5])]);
  out.push([" : " + str(l[6]), "soft"]);
  return out;
}

const lineText = (c, l) => tokens(c, l).map((t) => t[0]).join("") + (l[0] === OP || l[0] === GONE ? " " + str(l[7]) : "");

// lineElement draws a line; group is the name that its place need not repeat.
function lineElement(c, l, group) {
  if (l[0] === REMARK) {
    return el("div", { class: "line remark " + str(l[1]) }, el("b", {}, str(l[1])), el("span", {}, " " + str(l[3]) + ": " + str(l[2])));
  }
  const gone = l[0] === GONE;
  const mark = l[0] === OP ? l[8] : l[0] === DECL ? l[4] : 0;
  const text = el("span", { class: "text" });
  for (const [s, cls, v] of tokens(c, l)) {
    if (cls === "v") text.append(el("a", { class: "v", href: "#value=" + v, "data-v": v }, s));
    else if (cls) text.append(el("span", { class: cls }, s));
    else text.append(s);
  }
  const e = el("div", { class: "line " + (gone ? "gone" : MARK[mark]) },
    el("span", { class: "mark", title: gone ? "gone" : MARK[mark] }, gone ? "\u2212 " : SIGN[mark]), text);
  if (l[0] === OP || gone) {
    let loc = str(l[7]);
    if (group !== undefined && loc.startsWith(group)) loc = loc.slice(group.length);
    if (loc) e.append(el("span", { class: "soft" }, "  " + loc));
  }
  return e;
}
