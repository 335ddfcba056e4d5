/* Fill the page, then unpack Plotly and draw. */
const TOO_OLD = "This browser cannot unpack the program that draws the charts: it has no DecompressionStream. "
  + "Chrome and Edge have it from 80 on, Firefox from 113, Safari from 16.4. The tables below are complete.";
let isReady = false;

document.title = data.title;
/* A line break within a word such as --model would be read as part of it. */
document.querySelector("h1").append(...data.title.split(" ").flatMap((word, place) =>
  [...(place ? [" "] : []), made("span", {textContent: word, className: word.length < 30 ? "word" : ""})]));
put("#run", data.run);
document.querySelector("#verdict").append(...data.verdict.map(line => made("p", {textContent: line})));
put("#peak", data.peak);
document.getElementById("lines").append(...data.lines.flatMap(([heading, text]) =>
  [made("dt", {textContent: heading}), made("dd", {textContent: text})]));
document.getElementById("warnings").append(...data.warnings.map(text => made("li", {textContent: text})));
document.querySelectorAll("form").forEach(form => form.addEventListener("submit", event => event.preventDefault()));
fill("memory");
fill("ranks");
fill("facts");
tables.operations = tree("operations", 1, data.levels, (line, row) => {
  const cell = line.cells[1], text = cell.textContent;
  cell.dataset.text = text;
  if (row.whole) cell.title = row.whole;
  const swatch = made("span", {className: "swatch"});
  swatch.style.background = row.colour;
  cell.textContent = text.replace(/^…/, "…\u2060");  // no line break behind it
  cell.prepend(swatch);
  if (row.details) cell.append(made("small", {textContent: row.details}));
  linked(line, row);
});
tables.processes = tree("processes", 0, 99, (line, row) => {
  line.title = row.details;
  linked(line, row);
});
Object.values(tables).forEach(listen);
fit();
addEventListener("resize", fit);
document.getElementById("flame").hidden = !data.flame;
if (data.chart.nothing) {
  chart.textContent = data.chart.nothing;
  put("#hint", "");
}

async function unpacked() {
  if (!("DecompressionStream" in window)) throw new Error(TOO_OLD);
  const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), letter => letter.charCodeAt(0));
  const program = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  document.head.append(made("script", {textContent: await new Response(program).text()}));
}
function draw() {
  if (!data.chart.nothing) show();
  if (data.flame) showFlame();
}
let wide = 0;
async function start() {
  await unpacked();
  if (!data.chart.nothing) {
    await show();
    isReady = true;
    listenToChart();
  }
  if (data.flame) startFlame();
  wide = innerWidth;
  dark.addEventListener("change", draw);
  addEventListener("resize", () => {
    if (printing || innerWidth === wide) return;
    wide = innerWidth;
    draw();
  });
  for (const [when, is] of [["beforeprint", true], ["afterprint", false]]) {
    addEventListener(when, () => { printing = is; draw(); });
  }
}
/* The page counts as loaded when its charts are there, for whatever prints or pictures it then: a frame that is still
   written to delays that. */
const frame = made("iframe", {hidden: true});
document.body.append(frame);
frame.contentDocument.open();
function loaded() {
  frame.contentDocument.close();
  frame.remove();
}
if (data.chart.nothing && !data.flame) {
  loaded();
} else {
  start().catch(error => {
    chart.textContent = error.message === TOO_OLD ? TOO_OLD : `The charts cannot be drawn: ${error.message}. The tables below are complete.`;
    chart.className = "cannot";
    document.getElementById("flame").hidden = true;
    put("#hint", "");
    if (error.message !== TOO_OLD) throw error;
  }).finally(loaded);
}
