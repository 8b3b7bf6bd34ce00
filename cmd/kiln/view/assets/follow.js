let picked = -1; // the value that is followed

// markPicked marks the followed value in what was just drawn.
function markPicked(root) {
  if (picked < 0) return;
  root.querySelectorAll('.v[data-v="' + picked + '"]').forEach((e) => e.classList.add("picked"));
}

// definition finds where a column defines a value: [group, line], and whether it is
// gone there.
function definition(c, v) {
  let gone = null;
  for (let g = 0; g < c.cells.length; g++) {
    for (let n = 0; n < c.cells[g].length; n++) {
      const l = c.cells[g][n];
      if (l[0] === OP && l[2].includes(v) || l[0] === DECL && l[2] === v) return { group: g, line: n, gone: false };
      if (l[0] === GONE && l[2].includes(v)) gone = { group: g, line: n, gone: true };
    }
  }
  return gone;
}

// uses counts the lines of a column that read a value.
function uses(c, v) {
  let n = 0;
  for (const cell of c.cells) {
    for (const l of cell) {
      if (l[0] === OP && l[4].includes(v) || l[0] === OUT && l[2] === v) n++;
    }
  }
  return n;
}

// follow marks a value in all columns, opens where it is defined, and lists that.
function follow(v) {
  document.querySelectorAll(".v.picked").forEach((e) => e.classList.remove("picked"));
  picked = v;
  const rows = el("table", {}), places = [];
  for (const c of shown) {
    const d = definition(c, v);
    const cell = el("td", {});
    if (d) {
      groupRows[d.group].open();
      places.push(groupRows[d.group].line(c.index, d.line));
      const list = c.cells[d.group];
      cell.append(lineElement(c, list[d.line]));
      for (let n = d.line + 1; n < list.length && list[n][0] === REMARK; n++) cell.append(lineElement(c, list[n]));
      if (!d.gone) cell.append(el("div", { class: "soft" }, "read by " + uses(c, v) + (uses(c, v) === 1 ? " line" : " lines")));
    } else {
      cell.append(el("span", { class: "soft" }, "not in this column"));
    }
    const go = el("button", { type: "button" }, str(c.name));
    if (d) go.addEventListener("click", () => groupRows[d.group].line(c.index, d.line).scrollIntoView({ block: "center", inline: "center" }));
    rows.append(el("tr", {}, el("td", {}, go), cell));
  }
  const launches = launchesOf(v);
  if (launches) rows.append(el("tr", {}, el("td", {}, "launches"), launches));
  showTrail(nameAnywhere(v) || "value " + v, rows);
  markPicked(document);
  const first = places[0];
  if (first && !inView(first)) first.scrollIntoView({ block: "center", inline: "nearest" });
}

function inView(e) {
  const r = e.getBoundingClientRect(), g = byId("grid").getBoundingClientRect();
  return r.top >= Math.max(g.top + 50, 0) && r.bottom <= Math.min(g.bottom, innerHeight * 0.66);
}

// launchesOf lists the launches of the op that makes a value, by its place in the
// last column.
function launchesOf(v) {
  if (!data.plan || !shown.length) return null;
  const c = shown[shown.length - 1], d = definition(c, v);
  if (!d || d.gone || c.cells[d.group][d.line][0] !== OP) return null;
  const l = c.cells[d.group][d.line], cell = el("td", {});
  data.plan.launches.forEach((x, i) => {
    if (x.op === l[3] && x.loc === l[7]) cell.append(el("a", { href: "#launch=" + i }, "#" + i + " " + data.plan.kernels[x.kernel].form), "  ");
  });
  if (!cell.childNodes.length) return null;
  cell.prepend(el("span", { class: "soft" }, "of " + str(l[3]) + " at " + str(l[7]) + ": "));
  return cell;
}

function showUnchanged(c) {
  const list = el("div", {}, el("p", {}, str(c.doc)));
  if (!c.remarks.length) list.append(el("p", { class: "soft" }, "It changed nothing and has no remarks."));
  for (const r of c.remarks) {
    const e = lineElement(c, r);
    e.append(el("span", { class: "soft" }, "  " + str(r[4]) + " "));
    r[5].forEach((v) => e.append(el("a", { class: "v", href: "#value=" + v }, nameAnywhere(v)), " "));
    list.append(e);
  }
  showTrail(str(c.name) + ": " + c.state, list);
}

function showTrail(title, body) {
  const close = el("button", { type: "button", class: "close" }, "Close (Esc)");
  close.addEventListener("click", hideTrail);
  byId("trail").replaceChildren(close, el("h2", {}, title), body);
  byId("trail").hidden = false;
}

function hideTrail() {
  byId("trail").hidden = true;
  document.querySelectorAll(".v.picked").forEach((e) => e.classList.remove("picked"));
  picked = -1;
  if (location.hash.startsWith("#value=")) history.replaceState(null, "", location.pathname + location.search);
}
