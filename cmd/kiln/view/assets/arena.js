// drawArena draws which bytes of the arena hold something in which launch, with
// the number of live bytes over it.
function drawArena(body) {
  const p = data.plan, n = p.launches.length;
  const live = new Float64Array(n);
  for (const b of p.buffers) {
    for (let i = Math.max(b.first, 0); i <= Math.min(b.last, n - 1); i++) live[i] += b.bytes;
  }
  let peak = 0;
  for (let i = 1; i < n; i++) if (live[i] > live[peak]) peak = i;
  const select = el("select", {}, el("option", { value: "" }, "the whole step"));
  p.groups.forEach((g, i) => select.append(el("option", { value: i }, str(g))));
  const canvas = el("canvas", { tabindex: "0", role: "img", "aria-label": "arena: launches from left to right, bytes from bottom to top; the table below has the largest buffers" });
  const hover = el("div", { id: "hover" }, "Point at a rectangle, or click it to go to the launch that begins it.");
  body.append(el("h3", {}, "Arena"),
    el("p", {}, bytes(p.arena) + " for " + p.buffers.length + " buffers, at most " + bytes(n ? live[peak] : 0) + " of them live at a time" + (n ? " (launch " + peak + ")" : "")),
    el("div", { class: "bar" }, el("label", {}, "Show ", select), legend()), canvas, hover, largest(p));
  let from = 0, to = n;
  const x = (w, i) => (i - from) / (to - from) * w;
  const draw = () => {
    const w = canvas.clientWidth, h = canvas.clientHeight, dpr = devicePixelRatio || 1;
    canvas.width = w * dpr;
    canvas.height = h * dpr;
    const c = canvas.getContext("2d"), css = getComputedStyle(document.documentElement);
    const color = (name) => css.getPropertyValue(name);
    c.scale(dpr, dpr);
    for (const b of p.buffers) {
      if (b.last < from || b.first >= to) continue;
      const tone = b.kind === "input" ? "--input" : b.kind === "output" ? "--output" : p.launches[b.first].group % 2 ? "--b" : "--a";
      c.fillStyle = color(tone);
      const left = x(w, Math.max(b.first, from)), right = x(w, Math.min(b.last + 1, to));
      const top = h * (1 - (b.offset + b.bytes) / p.arena), tall = h * b.bytes / p.arena;
      c.fillRect(left, top, Math.max(right - left, 0.7), Math.max(tall, 0.7));
      if (to - from < 400) {
        c.strokeStyle = color("--back");
        c.strokeRect(left, top, right - left, tall);
      }
    }
    c.strokeStyle = color("--live");
    c.lineWidth = 1.5;
    c.beginPath();
    for (let i = from; i < to; i++) {
      const y = h * (1 - live[i] / p.arena);
      c.lineTo(x(w, i), y);
      c.lineTo(x(w, i + 1), y);
    }
    c.stroke();
  };
  const at = (ev) => {
    const r = canvas.getBoundingClientRect();
    const launch = Math.floor(from + (ev.clientX - r.left) / r.width * (to - from));
    const byte = p.arena * (1 - (ev.clientY - r.top) / r.height);
    return [launch, p.buffers.find((b) => b.first <= launch && launch <= b.last && b.offset <= byte && byte < b.offset + b.bytes)];
  };
  canvas.addEventListener("mousemove", (ev) => {
    const [launch, b] = at(ev), l = p.launches[launch];
    if (!l) return;
    hover.textContent = "launch " + launch + ": " + str(l.op) + " " + str(l.loc) + " \u2014 " + (b ? bufferText(b) : "nothing lives in these bytes");
  });
  canvas.addEventListener("click", (ev) => {
    const [, b] = at(ev);
    if (b) location.hash = "#launch=" + Math.max(b.first, 0);
  });
  select.addEventListener("change", () => {
    const ofGroup = p.launches.map((l, i) => i).filter((i) => select.value === "" || p.launches[i].group === Number(select.value));
    from = ofGroup[0];
    to = ofGroup[ofGroup.length - 1] + 1;
    draw();
  });
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
}

const when = (i) => i < 0 ? "start" : i >= data.plan.launches.length ? "end" : String(i);
const bufferText = (b) => bytes(b.bytes) + " at +" + b.offset + ", " + b.kind + " " + str(b.name) + ", lives " + when(b.first) + " to " + when(b.last);

function legend() {
  const list = el("span", { class: "legend" });
  for (const [tone, text] of [["--a", "scratch, every other layer"], ["--b", "scratch, the layers between"], ["--input", "inputs"], ["--output", "outputs"], ["--live", "line: bytes alive"]]) {
    const i = el("i");
    i.style.background = "var(" + tone + ")";
    list.append(el("span", {}, i, text));
  }
  return list;
}

function largest(p) {
  const rows = p.buffers.slice().sort((a, b) => b.bytes - a.bytes || a.first - b.first).slice(0, 20);
  const t = el("table", {}, el("tr", {}, el("th", { class: "n" }, "bytes"), el("th", { class: "n" }, "offset"), el("th", { class: "n" }, "first"), el("th", { class: "n" }, "last"), el("th", {}, "kind"), el("th", {}, "begun by")));
  for (const b of rows) {
    const go = (i) => i < 0 || i >= p.launches.length ? when(i) : el("a", { href: "#launch=" + i }, when(i));
    t.append(el("tr", {}, el("td", { class: "n" }, bytes(b.bytes)), el("td", { class: "n" }, String(b.offset)), el("td", { class: "n" }, go(b.first)), el("td", { class: "n" }, go(b.last)), el("td", {}, b.kind), el("td", {}, str(b.name))));
  }
  return el("details", {}, el("summary", {}, "the " + rows.length + " largest buffers"), el("div", { class: "wide" }, t));
}
