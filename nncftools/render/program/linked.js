/* Rows and chart show each other: a click on a row zooms to its time, one in the chart finds the row. */
const STEADY = 4, DOUBLE_MS = 300, BESIDE = 0.04, LEAST = 0.004;
const tables = {};
const inUnit = span => span.map(moment => moment / data.chart.factor);

function mark(node) {
  document.querySelectorAll("tr.on").forEach(line => line.classList.remove("on"));
  node?.line.classList.add("on");
  chosen = node?.row.span ? inUnit(node.row.span) : null;
  put("#chosen span", node ? [...node.line.cells].slice(0, 2).map(cell => cell.dataset.text ?? cell.textContent).join(" ") : "");
}
/* Zoom to the time of a row, with a little of what was before and after. */
function zoomTo(node) {
  mark(node);
  const [start, end] = inUnit(node.row.span), [first, last] = data.chart.range;
  const beside = Math.max((end - start) * BESIDE, (last - first) * LEAST);
  zoom([Math.max(first, start - beside), Math.min(last, end + beside)]);
  chart.scrollIntoView({block: "nearest"});
}
function zoom(range) {
  document.getElementById("chosen").hidden = false;
  show(range);
}
function wholeRun() {
  mark(null);
  document.querySelectorAll("tr.alive").forEach(line => line.classList.remove("alive"));
  document.getElementById("chosen").hidden = true;
  show(data.chart.range);
}
function linked(line, row) {
  if (!row.span || data.chart.nothing) return;
  line.tabIndex = 0;
  line.classList.add("linked");
}
function listen(table) {
  for (const node of table.nodes.filter(({line}) => line.classList.contains("linked"))) {
    node.line.addEventListener("click", () => isReady && zoomTo(node));
    node.line.addEventListener("keydown", event => event.key === "Enter" && event.target === node.line && isReady && zoomTo(node));
  }
}
/* Return the operation at a moment: in the band the one in this lane, elsewhere the innermost one that has a row. */
function operationAt(moment, lane) {
  const {nodes} = tables.operations;
  if (lane !== null) {
    const places = data.chart.bars.flatMap(bar => bar.place.filter((_, at) =>
      bar.lane[at] === lane && bar.base[at] <= moment && moment <= bar.base[at] + bar.width[at]));
    return nodes.find(({row}) => places.includes(row.place));
  }
  const around = nodes.filter(({row}) => inUnit(row.span)[0] <= moment && moment <= inUnit(row.span)[1]);
  return around.reduce((best, node) => best && best.row.depth > node.row.depth ? best : node, undefined);
}
function find(moment, lane) {
  for (const {line, row} of tables.processes.nodes) {
    const [start, end] = row.span ? inUnit(row.span) : [1, 0];
    line.classList.toggle("alive", start <= moment && moment <= end);
  }
  const node = operationAt(moment, lane);
  mark(node ?? null);
  document.getElementById("chosen").hidden = !node;
  show();
  if (node) tables.operations.reveal(node);
}
/* A click is a press without a movement. Double clicks show the whole run; Plotly's own would take each panel alone. */
function listenToChart() {
  let pressed = null, waiting = 0;
  chart.addEventListener("mousedown", event => {
    pressed = event.target.closest(".nsewdrag") ? [event.clientX, event.clientY, event.target.closest(".nsewdrag")] : null;
  }, true);
  addEventListener("mouseup", event => {
    if (!pressed) return;
    const [x, y, area] = pressed, box = area.getBoundingClientRect();
    pressed = null;
    if (Math.hypot(event.clientX - x, event.clientY - y) > STEADY) return;
    clearTimeout(waiting);
    if (event.detail > 1) return wholeRun();
    const [first, last] = chart.layout.xaxis.range.map(Number);
    const moment = first + (x - box.left) / box.width * (last - first);
    const lane = area.dataset.subplot === "xy4" ? Math.floor((y - box.top) / box.height * lanes) : null;
    waiting = setTimeout(() => find(moment, lane), DOUBLE_MS);
  }, true);
  chart.on("plotly_relayout", changed => {
    if ("xaxis.range[0]" in changed || "xaxis.range" in changed || "xaxis.autorange" in changed) {
      document.getElementById("chosen").hidden = false;
      show("xaxis.autorange" in changed ? data.chart.range : undefined);
    }
  });
  document.querySelector("#chosen button").addEventListener("click", wholeRun);
}
