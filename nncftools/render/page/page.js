"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const chart = document.getElementById("chart");

function put(selector, text) {
  document.querySelector(selector).textContent = text;
}
function cell(text, name, kind = "td") {
  return Object.assign(document.createElement(kind), {textContent: text, className: name});
}
/* Fill the table with this id; hide its section when it has no rows. */
function fill(part, draw) {
  const {headings, texts, rows, more} = data.tables[part];
  const table = document.getElementById(part);
  const style = place => texts[place] ? "text" : "";
  if (!table.classList.contains("headless")) {
    table.createTHead().insertRow().append(...headings.map((text, place) => cell(text, style(place), "th")));
  }
  const body = table.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    line.append(...row.cells.map((text, place) => cell(text, style(place))));
    line.classList.toggle("peak", row.strong);
    draw?.(line, row);
  }
  const section = table.closest("section");
  section.hidden = !rows.length;
  section.querySelector(".more")?.append(more);
}
function name(line, row, place) {
  const at = line.cells[place];
  at.className = "name text";
  at.style.paddingLeft = `${0.6 + 1.1 * Math.min(row.depth, 12)}rem`;
  return at;
}

document.title = data.title;
put("h1", data.title);
put("#run", data.run);
for (const line of data.verdict) document.querySelector("#verdict").append(Object.assign(document.createElement("p"), {textContent: line}));
put("#peak", data.peak);
put("#limit", data.limit);
document.getElementById("warnings").append(
  ...data.warnings.map(text => Object.assign(document.createElement("li"), {textContent: text})));
fill("memory");
fill("ranks");
fill("facts");
fill("operations", (line, row) => {
  const at = name(line, row, 1);
  const swatch = Object.assign(document.createElement("span"), {className: "swatch"});
  swatch.style.background = row.colour;
  at.prepend(swatch);
  if (row.details) at.append(Object.assign(document.createElement("small"), {textContent: row.details}));
  line.tabIndex = 0;
  line.title = "show this time";
  const zoom = () => {
    Plotly.relayout(chart, {"xaxis.range": row.span.map(moment => moment / data.chart.factor)});
    chart.scrollIntoView({block: "nearest"});
  };
  line.addEventListener("click", zoom);
  line.addEventListener("keydown", event => event.key === "Enter" && zoom());
});
fill("processes", (line, row) => {
  name(line, row, 0);
  line.title = row.details;
});

/* Escape names: Plotly interprets some HTML in every text. */
function escaped(text) {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
}
function plain(text) {
  return escaped(text).replace(/(.{70})/gu, "$1<br>");
}
const dark = matchMedia("(prefers-color-scheme: dark)");
const LIGHT = {ink: "#202124", faint: "#5f6368", line: "#e3e3e3", paper: "#ffffff",
  lines: ["#202124", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7a7f85"]};
const DARK = {ink: "#e8eaed", faint: "#a5aab0", line: "#36393d", paper: "#1b1c1f",
  lines: ["#e8eaed", "#56B4E9", "#E8762B", "#22B98F", "#DDA0C2", "#8CCBF0", "#F0B93A", "#9aa0a6"]};
const DASHES = ["solid", "dash", "dot"];

/* The panels from top to bottom: y axis, data and relative height. */
const panels = [["y", "memory", 10], ["y5", "kinds", 6], ["y2", "cpu", 4], ["y3", "io", 4]].filter(([, part]) => data.chart[part].length);
const lanes = data.chart.lanes;
const heights = [...(lanes ? [["y4", "band", 0.7 * lanes]] : []), ...panels];
const GAP = 0.95;
const PIXELS = 30, ABOVE = 32, BELOW = 44;
/* Return the room above a panel: for more when its legend needs several rows, as names of files do. */
function gapAbove(part) {
  if (part !== "kinds") return GAP;
  const wide = chart.clientWidth - 84, widths = data.chart.kinds.map(({name}) => 60 + 6.6 * name.length);
  const columns = Math.max(1, Math.floor(wide / Math.max(...widths)));
  const rows = widths.reduce((sum, one) => sum + one, 0) <= wide ? 1 : Math.ceil(widths.length / columns);
  return GAP + 0.65 * (rows - 1);
}
const whole = heights.reduce((sum, [, part, high], place) => sum + high + (place ? gapAbove(part) : 0), 0);

function traces() {
  const bars = data.chart.bars.map(bar => ({
    type: "bar", orientation: "h", yaxis: "y4", showlegend: false, name: "",
    base: bar.base, x: bar.width, y: bar.lane, width: bar.base.map(() => 0.86),
    marker: {color: bar.colour, line: {width: 0.6, color: bar.colour},
      pattern: {shape: bar.pattern, fgcolor: "#ffffff", fillmode: "overlay", size: 6}},
    text: bar.names.map(plain), textposition: "inside", insidetextanchor: "middle", constraintext: "inside",
    textangle: 0, textfont: {color: bar.ink, size: 11},
    customdata: bar.hover.map(plain), hovertemplate: "%{customdata}<extra></extra>",
  }));
  const kinds = data.chart.kinds.map(kind => ({
    type: "bar", yaxis: "y5", legend: "legend5", name: plain(kind.name), x: kind.x, y: kind.y, width: kind.width, base: kind.base,
    marker: {color: kind.colour, line: {width: 0}, pattern: {shape: kind.pattern, fgcolor: "#ffffff", fillmode: "overlay", size: 5}},
    hovertemplate: `%{customdata:,.1f} ${kind.unit}<extra>${plain(kind.name)}</extra>`, customdata: kind.y,
  }));
  const lines = panels.filter(([, part]) => part !== "kinds").flatMap(([axis, part]) => data.chart[part].map((line, place) => ({
    type: "scatter", mode: line.steps || line.limit || line.x.length > 60 ? "lines" : "lines+markers", yaxis: axis, name: plain(line.name),
    x: line.x, y: line.y, connectgaps: false, cliponaxis: line.x.length > 60, visible: line.hidden ? "legendonly" : true,
    line: {width: place ? 1.3 : 1.8, shape: line.steps ? "hv" : "linear", dash: line.limit ? "6px,4px" : DASHES[Math.floor(place / 8) % 3]},
    marker: {size: 5}, legend: {y: "legend", y2: "legend2", y3: "legend3"}[axis],
    hovertemplate: `%{y:,.${line.digits}f} ${line.unit}<extra>${plain(line.name)}</extra>`, hoverinfo: line.limit ? "skip" : "all", meta: line.limit ? 0 : place,
  })));
  return [...bars, ...kinds, ...lines];
}
function layout(look) {
  const made = {
    height: whole * PIXELS + ABOVE + BELOW, margin: {l: 72, r: 12, t: ABOVE, b: BELOW}, autosize: true,
    paper_bgcolor: look.paper, plot_bgcolor: look.paper, font: {family: "system-ui, sans-serif", size: 12, color: look.ink},
    barmode: "overlay", uniformtext: {mode: "hide", minsize: 10}, dragmode: "zoom", hovermode: "x unified", hoversubplots: "axis",
    hoverlabel: {bgcolor: look.paper, bordercolor: look.line, font: {color: look.ink}, namelength: -1, align: "left"},
    xaxis: {title: {text: `Time (${data.chart.time_unit})`, font: {color: look.faint}, standoff: 8}, range: data.chart.range,
      gridcolor: look.line, zeroline: false, anchor: panels.length ? panels.at(-1)[0] : "y4",
      showspikes: true, spikemode: "across", spikethickness: 1, spikecolor: look.faint, spikedash: "dot",
      hoverformat: ".6~g", unifiedhovertitle: {text: `%{x} ${data.chart.time_unit}`}},
    shapes: data.chart.shades.map(([x0, x1, colour]) => ({type: "rect", xref: "x", yref: "y domain", x0, x1, y0: 0, y1: 1,
      fillcolor: colour, opacity: 0.13, line: {width: 0}, layer: "below"})),
    annotations: [],
  };
  let top = 1;
  for (const [place, [axis, part, high]] of heights.entries()) {
    top -= place ? gapAbove(part) / whole : 0;
    const domain = [Math.max(0, top - high / whole), top];
    made[axis.replace("y", "yaxis")] = part === "band"
      ? {domain, range: [lanes - 0.5, -0.5], visible: false, fixedrange: true}
      : {domain, title: {text: data.chart.axes[part], font: {color: look.faint}}, gridcolor: look.line, zeroline: false,
        rangemode: "tozero", automargin: true, tickformat: ",~r", fixedrange: false,
        ...(part === "memory" && data.chart.from_zero ? {rangemode: "normal"} : {})};
    made[axis.replace("y", "legend").replace(/^legend4$/, "legend9")] = {orientation: "h", x: 0, xanchor: "left",
      y: domain[1], yanchor: "bottom", bgcolor: "rgba(0,0,0,0)", font: {color: look.ink, size: 11.5}, tracegroupgap: 0};
    top = domain[0];
  }
  const peak = data.chart.peak;
  if (peak?.mark) {
    const line = {type: "line", xref: "x", yref: "y", line: {color: look.faint, width: 1, dash: "dot"}};
    made.shapes.push({...line, x0: peak.x, x1: peak.x, y0: 0, y1: peak.y});
    made.shapes.push({...line, x0: peak.mark[0], x1: peak.mark[1], y0: peak.y, y1: peak.y, line: {color: look.ink, width: 2}});
  }
  if (peak) {
    made.annotations.push({x: peak.x, y: peak.y, text: plain(peak.text), showarrow: true, arrowhead: 0, arrowwidth: 1,
      ax: peak.left ? 40 : -40, ay: -16, xanchor: peak.left ? "left" : "right", arrowcolor: look.faint,
      font: {color: look.ink, size: 12}, bgcolor: `${look.paper}b0`, borderpad: 2});
  }
  return made;
}
function show(look) {
  const shown = traces();
  for (const trace of shown) {
    if (trace.type !== "scatter") continue;
    trace.line.color = look.lines[trace.meta % look.lines.length];
    const before = chart.data?.find(other => other.yaxis === trace.yaxis && other.name === trace.name);
    if (before) trace.visible = before.visible;
  }
  const made = layout(look);
  if (chart.layout?.xaxis) made.xaxis.range = chart.layout.xaxis.range;
  return Plotly.react(chart, shown, made, {responsive: true, displaylogo: false, displayModeBar: "hover",
    modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]], toImageButtonOptions: {format: "svg"}});
}
const theme = () => show(dark.matches ? DARK : LIGHT);
if (data.chart.nothing) {
  chart.textContent = data.chart.nothing;
  put("#hint", "");
} else {
  theme();
  dark.addEventListener("change", theme);
  addEventListener("beforeprint", () => show(LIGHT));
  addEventListener("afterprint", theme);
}

/* The flame graph: boxes are numbers; the first one is the whole peak. */
const flame = data.flame;
const icicle = document.getElementById("icicle");
const IMPORT = "import ";
const ROW = 20, MOST_ROWS = 40, LETTER = 6.6, FEWEST_LETTERS = 3, FAINT = 0.82;
let zoomed = 0, sought = "";
const deepest = [];

function sizeText(size) {
  const digits = {minimumFractionDigits: flame.digits, maximumFractionDigits: flame.digits};
  return `${(size / flame.factor).toLocaleString("en", digits)} ${flame.unit}`;
}
function shareText(size) {
  return `${(100 * size / flame.size[0]).toFixed(1)} %`;
}
/* Mix a colour with another one. */
function mixed(colour, other, share) {
  const parts = [1, 3, 5].map(at => [colour, other].map(one => parseInt(one.slice(at, at + 2), 16)));
  return `#${parts.map(([one, two]) => Math.round(one + (two - one) * share).toString(16).padStart(2, "0")).join("")}`;
}
function packageOf(box) {
  return flame.packages[flame.package[box]]?.name ?? "";
}
/* Return whether each box is found; null when nothing is sought. */
function found() {
  const words = sought.trim().toLowerCase();
  if (!words) return null;
  return flame.name.map((text, box) => [text, flame.place[box], packageOf(box)].some(one => one.toLowerCase().includes(words)));
}
/* Say how much memory the boxes hold that were found: those inside of others count once. */
function tell(matches) {
  const output = document.querySelector("#flame output");
  if (!matches) return output.textContent = "";
  const inside = [];
  let size = 0, count = 0;
  matches.forEach((match, box) => {
    inside[box] = box > 0 && (inside[flame.parent[box]] || matches[flame.parent[box]]);
    count += match;
    if (match && !inside[box]) size += flame.size[box];
  });
  output.textContent = count ? `${sizeText(size)}, ${shareText(size)} of the peak, in ${count} ${count > 1 ? "boxes" : "box"}` : "not found";
}
function boxText(box, wide) {
  const room = Math.floor((wide * flame.size[box] / flame.size[zoomed] - 8) / LETTER);
  const [name, place] = [flame.name[box], flame.place[box]];
  if (room < FEWEST_LETTERS) return "";
  if (name.length + place.length + 2 <= room) return place ? `${name}  ${place}` : name;
  if (name.length <= room) return name;
  const module = name.startsWith(IMPORT) ? name.slice(IMPORT.length) : "";
  if (module) return module.length <= room ? module : `…${module.slice(1 - room)}`;
  return `${name.slice(0, room - 1)}…`;
}
function hover(box) {
  const certain = flame.certain[box] === flame.size[box] ? "all of it certain" : `${sizeText(flame.certain[box])} of it certain`;
  const known = flame.place[box] || !box ? `<br>${certain}` : "";
  const place = flame.place[box] ? `<br>${plain(flame.place[box])}` : "";
  return `<b>${plain(flame.name[box])}</b>${place}<br>${sizeText(flame.size[box])}, ${shareText(flame.size[box])} of the peak${known}`;
}
function showFlame() {
  const look = dark.matches && !printing ? DARK : LIGHT;
  const matches = found();
  tell(matches);
  const isFound = matches?.includes(true);
  const levels = Math.min(deepest[zoomed], MOST_ROWS);
  const looks = flame.package.map((of, box) => ({...(flame.packages[of] ?? flame.rest), faint: isFound && !matches[box]}));
  const wide = icicle.clientWidth;
  const font = {size: 11, color: looks.map(of => of.faint ? look.faint : of.ink)};
  const ids = flame.size.map((_, box) => `${box}`);
  const nav = document.querySelector("#flame nav");
  nav.hidden = !zoomed;
  const path = [];
  for (let box = flame.parent[zoomed]; box; box = flame.parent[box]) path.unshift(flame.name[box]);
  nav.querySelector("span").textContent = path.length > 8 ? ["…", ...path.slice(-8)].join(" › ") : path.join(" › ");
  const trace = {
    type: "icicle", ids, labels: ids, parents: flame.parent.map(of => of === null ? "" : `${of}`), values: flame.size,
    branchvalues: "total", level: `${zoomed}`, maxdepth: levels, tiling: {orientation: "v", pad: 1}, pathbar: {visible: false},
    text: ids.map((_, box) => escaped(boxText(box, wide))), texttemplate: "%{text}", textposition: "middle left",
    customdata: ids.map((_, box) => hover(box)), hovertemplate: "%{customdata}<extra></extra>",
    insidetextfont: font, outsidetextfont: font, root: {color: "rgba(0,0,0,0)"}, leaf: {opacity: 1},
    marker: {
      colors: looks.map(of => of.faint ? mixed(of.colour, look.paper, FAINT) : of.colour),
      line: {width: 0},
    },
  };
  const layout = {
    height: levels * ROW + 2, margin: {l: 0, r: 0, t: 0, b: 0}, autosize: true, paper_bgcolor: look.paper,
    font: {family: "system-ui, sans-serif", size: 12, color: look.ink},
    hoverlabel: {bgcolor: look.paper, bordercolor: look.line, font: {color: look.ink}, align: "left"},
  };
  return Plotly.react(icicle, [trace], layout, {responsive: false, displayModeBar: false});
}
function zoomTo(box) {
  zoomed = box === zoomed ? flame.parent[box] ?? 0 : box;
  showFlame();
}
let printing = false;
if (flame) {
  const section = document.getElementById("flame");
  section.hidden = false;
  flame.size.forEach((_, box) => deepest[box] = 1);
  for (let box = flame.size.length - 1; box; box--) {
    deepest[flame.parent[box]] = Math.max(deepest[flame.parent[box]], deepest[box] + 1);
  }
  section.querySelector(".text").textContent = flame.text;
  const own = flame.packages.filter(one => !one.other), others = flame.packages.filter(one => one.other);
  section.querySelector("ul").append(...[...own, ...(others.length ? [{...others[0], name: "other packages"}] : [])].map(one => {
    const item = document.createElement("li");
    const swatch = Object.assign(document.createElement("span"), {className: "swatch"});
    swatch.style.background = one.colour;
    item.append(swatch, one.name);
    return item;
  }));
  section.querySelector("button").addEventListener("click", () => {
    zoomed = 0;
    showFlame();
  });
  section.querySelector("form").addEventListener("submit", event => event.preventDefault());
  section.querySelector("input").addEventListener("input", event => {
    sought = event.target.value;
    showFlame();
  });
  showFlame().then(() => icicle.on("plotly_icicleclick", event => {
    zoomTo(event.points[0].pointNumber);
    return false;
  }));
  dark.addEventListener("change", showFlame);
  addEventListener("resize", showFlame);
  addEventListener("beforeprint", () => { printing = true; showFlame(); });
  addEventListener("afterprint", () => { printing = false; showFlame(); });
}
