// groupRows are the rows of the grid, by group.
const groupRows = [];

// drawPasses lays out the pipeline and the grid: a row per group of ops, in which
// every column shows its own. Lines are made when a row is opened.
function drawPasses() {
  byId("passes").hidden = false;
  drawPipeline();
  const grid = byId("sheet");
  grid.style.setProperty("--columns", shown.length);
  const heads = el("div", { class: "row heads" });
  for (const c of shown) {
    const lines = c.cells.flat();
    const n = (f) => lines.filter(f).length;
    const parts = [c.ops + " ops"];
    const add = (k, what) => { if (k) parts.push(k + " " + what); };
    add(n((l) => l[0] === OP && l[8] === 1), "new");
    add(n((l) => l[0] === OP && l[8] === 2), "changed");
    add(n((l) => l[0] === GONE), "gone");
    add(n((l) => l[0] === REMARK), "remarks");
    heads.append(c.head = el("div", {}, el("b", {}, str(c.name)), " ", el("span", { class: "soft" }, parts.join(", ")), el("div", { class: "soft" }, str(c.doc))));
  }
  grid.append(heads);
  const alike = new Map();
  data.groups.forEach((g, i) => {
    if (g.like >= 0) alike.set(g.like, (alike.get(g.like) || []).concat(i));
  });
  data.groups.forEach((g, i) => {
    if (shown.every((c) => c.cells[i].length === 0)) return;
    groupRows[i] = groupRow(g, i, alike.get(i) || []);
    grid.append(groupRows[i].root);
  });
  const rows = groupRows.filter((r) => r);
  if (rows.length <= 3) rows.forEach((r) => r.open());
  byId("open-all").addEventListener("click", () => rows.forEach((r) => { if (!r.root.hidden) r.open(); }));
  byId("close-all").addEventListener("click", () => rows.forEach((r) => r.close()));
}

function drawPipeline() {
  for (const c of data.columns) {
    const remarks = (c.cells ? c.cells.flat().filter((l) => l[0] === REMARK) : c.remarks).length;
    const state = c === data.columns[0] && c.cells ? "" : c.state;
    const b = el("button", { type: "button", title: str(c.doc) }, str(c.name),
      el("span", { class: "state" }, (state ? " " + state : "") + (remarks ? ", " + remarks + " remarks" : "")));
    b.addEventListener("click", () => {
      if (c.cells) c.head.scrollIntoView({ block: "nearest", inline: "start" });
      else showUnchanged(c);
    });
    byId("pipeline").append(el("li", { class: c.state }, b));
  }
}

// groupRow makes the row of a group. That of a layer which reads like another is
// hidden until it is asked for.
function groupRow(g, i, alike) {
  const sizes = shown.map((c) => c.cells[i].filter((l) => l[0] === OP).length);
  const texts = sizes.filter((n, k) => k === 0 || n !== sizes[k - 1]);
  const button = el("button", { type: "button", "aria-expanded": "false" }, g.name + " ",
    el("span", { class: "soft" }, sizes.some((n) => n) ? texts.join(" \u2192 ") + " ops" : ""));
  const root = el("section", { class: "group", "aria-label": g.name }, el("h4", {}, button));
  root.hidden = g.like >= 0;
  let cells = null;
  const r = {
    root,
    open() {
      root.hidden = false;
      if (!cells) {
        cells = el("div", { class: "row" });
        for (const c of shown) {
          const cell = el("div", { class: "cell" });
          for (const l of c.cells[i]) cell.append(lineElement(c, l, g.name));
          cells.append(cell);
        }
        root.append(cells);
        markPicked(cells);
      }
      cells.style.display = "";
      button.setAttribute("aria-expanded", "true");
    },
    close() {
      if (cells) cells.style.display = "none";
      button.setAttribute("aria-expanded", "false");
    },
    line: (column, k) => cells.children[column].children[k],
  };
  button.addEventListener("click", () => (button.getAttribute("aria-expanded") === "true" ? r.close() : r.open()));
  if (alike.length) root.append(alikeList(g, alike));
  return r;
}

function alikeList(g, alike) {
  const list = el("div", {}, el("span", { class: "soft" }, "the same but for the layer: "));
  for (const j of alike) {
    const b = el("button", { type: "button", title: "show " + data.groups[j].name }, data.groups[j].name.split(".").pop());
    b.addEventListener("click", () => {
      groupRows[j].open();
      groupRows[j].root.scrollIntoView({ block: "nearest" });
    });
    list.append(b);
  }
  return el("div", { class: "alike" }, list);
}

// find goes from line to line that has a text, group by group.
function startFind() {
  const form = byId("find"), out = form.querySelector("output");
  let last = "", at = [0, 0, -1];
  form.addEventListener("submit", (ev) => {
    ev.preventDefault();
    const want = form.elements.text.value.toLowerCase();
    if (!want) return;
    if (want !== last) { last = want; at = [0, 0, -1]; }
    document.querySelectorAll(".line.hit").forEach((e) => e.classList.remove("hit"));
    const next = nextLine(want, at);
    if (!next) {
      out.textContent = at[2] < 0 ? "not found" : "no more; Next starts over";
      at = [0, 0, -1];
      return;
    }
    at = next;
    const [i, k, n] = next;
    groupRows[i].open();
    const e = groupRows[i].line(k, n);
    e.classList.add("hit");
    e.scrollIntoView({ block: "center", inline: "nearest" });
    out.textContent = data.groups[i].name + ", " + str(shown[k].name);
  });
}

function nextLine(want, [i0, k0, n0]) {
  for (let i = i0; i < data.groups.length; i++) {
    for (let k = i === i0 ? k0 : 0; k < shown.length; k++) {
      const cell = shown[k].cells[i];
      for (let n = i === i0 && k === k0 ? n0 + 1 : 0; n < cell.length; n++) {
        if (lineText(shown[k], cell[n]).toLowerCase().includes(want)) return [i, k, n];
      }
    }
  }
  return null;
}
