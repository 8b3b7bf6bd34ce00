// go shows what the address asks for: #value=NUMBER or a name such as @embed,
// #launch=NUMBER, #kernel=SYMBOL.
function go() {
  const [what, text] = location.hash.slice(1).split(/=(.*)/s);
  if (text === undefined) return;
  const arg = decodeURIComponent(text);
  if (what === "value") {
    const v = /^\d+$/.test(arg) ? Number(arg) : data.names.indexOf(arg);
    if (v >= 0 && v < data.names.length && shown.length) follow(v);
  } else if (what === "launch") {
    showLaunch(Number(arg));
  } else if (what === "kernel") {
    showKernel(arg);
  }
}

if (shown.length) {
  drawPasses();
  startFind();
}
if (data.plan) drawPlan();
document.querySelectorAll("nav a").forEach((a) => { a.hidden = byId(a.hash.slice(1)).hidden; });
addEventListener("hashchange", go);
addEventListener("keydown", (ev) => { if (ev.key === "Escape") hideTrail(); });
// A link to where the address is already does not change it.
document.addEventListener("click", (ev) => {
  const a = ev.target.closest && ev.target.closest("a[href]");
  if (a && a.getAttribute("href") === location.hash) go();
});
go();
