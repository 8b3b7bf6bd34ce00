const launchGroups = [];

function drawPlan() {
  const p = data.plan;
  for (const id of ["plan", "launches", "kernels"]) byId(id).hidden = false;
  const body = byId("plan-body");
  const sum = (f) => p.launches.reduce((s, l) => s + f(l), 0);
  body.append(el("p", {}, p.launches.length + " launches of " + p.kernels.length + " kernels; they read and write " + bytes(sum((l) => l.bytes)) +
    " and compute " + count(sum((l) => l.flops)) + "FLOP; weights " + bytes(p.weights) + ", pools " + bytes(p.pools) + "."));
  if (p.decomposed.length) {
    body.append(el("h3", {}, "Decomposed, for no kernel form took them"), el("ul", {}, ...p.decomposed.map((d) => el("li", {}, d))));
  }
  drawArena(body);
  drawLaunches();
  drawKernels();
}

// floorBar is a bar of a floor time as a share of the largest beside it.
function floorBar(us, most, bound) {
  if (us < 0) return el("span", {}, "-");
  const i = el("i", { class: bound || "" });
  i.style.width = (most > 0 ? 100 * us / most : 0) + "%";
  return el("span", { class: "floor", title: micros(us) + " us" + (bound ? ", bound by " + bound : "") }, i);
}

function drawLaunches() {
  const p = data.plan, body = byId("launch-body");
  body.append(el("p", {}, p.card ? "Floor: the least time in which a " + p.card + " can move the bytes or compute the flops; a full bar is the longest of all places, or of the launches of one place; striped bars are bound by flops." :
    "Floor times are not known: this target has no published rates."));
  const t = el("table", {}, el("thead", {}, el("tr", {}, el("th", { class: "n" }, "#"), el("th", {}, "op"), el("th", {}, "kernel form"), el("th", { class: "n" }, "grid"),
    el("th", { class: "n" }, "bytes"), el("th", { class: "n" }, "flop"), el("th", { class: "n" }, "floor, us"), el("th", {}, "bound by"), el("th", {}, ""))));
  const of = p.groups.map(() => []);
  p.launches.forEach((l, i) => of[l.group].push(i));
  const total = (list, f) => list.reduce((s, i) => s + f(p.launches[i]), 0);
  const floors = of.map((list) => p.card ? total(list, (l) => l.floor) : -1);
  const most = floors.reduce((a, b) => Math.max(a, b), 0), mostOf = of.map((list) => list.reduce((a, i) => Math.max(a, p.launches[i].floor), 0));
  of.forEach((list, g) => {
    const button = el("button", { type: "button", "aria-expanded": "false" }, str(p.groups[g]));
    const flops = total(list, (l) => l.bound === "flops" ? l.floor : 0) * 2 > floors[g] ? "flops" : "bytes";
    const part = el("tbody", {}, el("tr", { class: "of" }, el("td", { class: "n" }, ""), el("th", {}, button), el("td", { class: "soft" }, list.length + " launches"), el("td", {}), el("td", { class: "n" }, bytes(total(list, (l) => l.bytes))),
      el("td", { class: "n" }, count(total(list, (l) => l.flops))), el("td", { class: "n" }, micros(floors[g])), el("td", {}, p.card ? flops : "-"), el("td", {}, floorBar(floors[g], most, flops))));
    const rows = [];
    const r = {
      open() {
        if (!rows.length) for (const i of list) rows.push(launchRow(i, mostOf[g]));
        part.append(...rows);
        button.setAttribute("aria-expanded", "true");
      },
      close() {
        rows.forEach((e) => e.remove());
        button.setAttribute("aria-expanded", "false");
      },
    };
    button.addEventListener("click", () => (button.getAttribute("aria-expanded") === "true" ? r.close() : r.open()));
    launchGroups[g] = r;
    t.append(part);
  });
  body.append(el("div", { class: "wide" }, t));
}

function launchRow(i, most) {
  const l = data.plan.launches[i], k = data.plan.kernels[l.kernel];
  const args = el("div", { class: "code soft", hidden: true }, l.args.map(str).join(", "));
  const more = el("button", { type: "button" }, "args");
  more.addEventListener("click", () => { args.hidden = !args.hidden; });
  return el("tr", { id: "launch-" + i }, el("td", { class: "n" }, String(i)), el("td", {}, str(l.op) + " ", el("span", { class: "soft" }, str(l.loc) + " "), more, args),
    el("td", {}, el("a", { href: "#kernel=" + encodeURIComponent(k.symbol) }, k.form)), el("td", { class: "n" }, String(l.grid)), el("td", { class: "n" }, bytes(l.bytes)),
    el("td", { class: "n" }, count(l.flops)), el("td", { class: "n" }, micros(l.floor)), el("td", {}, l.bound), el("td", {}, floorBar(l.floor, most, l.bound)));
}

function showLaunch(i) {
  const l = data.plan && data.plan.launches[i];
  if (!l) return;
  launchGroups[l.group].open();
  document.querySelectorAll("tr.picked").forEach((e) => e.classList.remove("picked"));
  const row = byId("launch-" + i);
  row.classList.add("picked");
  row.scrollIntoView({ block: "center" });
}

function drawKernels() {
  const p = data.plan, body = byId("kernel-body");
  const times = p.kernels.map(() => 0), floor = p.kernels.map(() => 0);
  for (const l of p.launches) {
    times[l.kernel]++;
    floor[l.kernel] += l.floor;
  }
  const order = p.kernels.map((k, i) => i).sort((a, b) => (p.card ? floor[b] - floor[a] : 0) || a - b);
  const most = order.reduce((a, i) => Math.max(a, floor[i]), 0);
  body.append(el("p", {}, p.card ? "Those whose launches need the longest at least come first." : "In the order of their first launches."));
  for (const i of order) {
    const k = p.kernels[i];
    const d = el("details", { id: "kernel-" + k.symbol }, el("summary", {}, p.card ? floorBar(floor[i], most) : "", " ", el("b", {}, k.form), " ", el("span", { class: "code" }, k.symbol), " ",
      times[i] + (times[i] === 1 ? " launch" : " launches") + (p.card ? ", floor " + micros(floor[i]) + " us" : "")));
    d.addEventListener("toggle", () => { if (d.open && d.children.length === 1) fillKernel(d, k); });
    body.append(d);
  }
}

function fillKernel(d, k) {
  d.append(el("p", { class: "code" }, k.spec));
  if (k.resources.length) {
    d.append(el("table", {}, el("tr", {}, ...k.resources.map((r) => el("th", { class: "n" }, r.name))), el("tr", {}, ...k.resources.map((r) => el("td", { class: "n" }, r.text)))));
  }
  if (k.rejected && k.rejected.length) {
    d.append(el("p", {}, "Forms that did not take the op:"), el("ul", {}, ...k.rejected.map((r) => el("li", {}, el("b", {}, r.form), ": " + r.reason))));
  }
  for (const [name, text] of [["LLVM IR", k.ir], ["instructions", k.isa]]) {
    if (!text) {
      d.append(el("p", { class: "soft" }, name + ": not in this page."));
      continue;
    }
    const lines = text.split("\n").length;
    const inner = el("details", {}, el("summary", {}, name + ", " + lines + " lines"));
    inner.addEventListener("toggle", () => { if (inner.open && inner.children.length === 1) inner.append(el("pre", { tabindex: "0" }, text)); });
    d.append(inner);
  }
}

function showKernel(symbol) {
  const d = byId("kernel-" + symbol);
  if (!d) return;
  document.querySelectorAll("details.picked").forEach((e) => e.classList.remove("picked"));
  d.classList.add("picked");
  d.open = true;
  d.scrollIntoView({ block: "start" });
}
