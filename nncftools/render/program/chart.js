/* Escape names: Plotly interprets some HTML in every text. */
function escaped(text) {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
}
function plain(text, letters = 70) {
  const lines = text.match(new RegExp(`.{1,${letters}}(?=\\s|$)|.{1,${letters}}`, "gsu")) ?? [];
  return lines.map(line => escaped(line.trimStart())).join("<br>");
}
const dark = matchMedia("(prefers-color-scheme: dark)");
const LIGHT = {ink: "#202124", faint: "#5f6368", line: "#e3e3e3", paper: "#ffffff",
  lines: ["#202124", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7a7f85"]};
const DARK = {ink: "#e8eaed", faint: "#a5aab0", line: "#36393d", paper: "#1b1c1f",
  lines: ["#e8eaed", "#56B4E9", "#E8762B", "#22B98F", "#DDA0C2", "#8CCBF0", "#F0B93A", "#9aa0a6"]};
const DASHES = ["solid", "dash", "dot"];
const PRINTED = 690, NARROW = 600;
let printing = false;
const theme = () => dark.matches && !printing ? DARK : LIGHT;
/* On paper, what is as wide as the screen would be cut. */
const size = () => printing ? {autosize: false, width: PRINTED} : {autosize: true};
const width = () => printing ? PRINTED : chart.clientWidth;

/* The panels from top to bottom: y axis, data and relative height. */
const panels = [["y", "memory", 10], ["y5", "kinds", 6], ["y2", "cpu", 4], ["y3", "io", 4]].filter(([, part]) => data.chart[part].length);
const lanes = data.chart.lanes;
const heights = [...(lanes ? [["y4", "band", 0.7 * lanes]] : []), ...panels];
const GAP = 0.95, PIXELS = 30, PRINTED_PIXELS = 22, ABOVE = 32, BELOW = 44, BUTTONS = 18, LEFT = 72, RIGHT = 12, LETTER_WIDTH = 6.6;
const inside = () => width() - LEFT - RIGHT;
/* Return the room above a panel: for more when its legend needs several rows. */
function gapAbove(part) {
  const widths = data.chart[part].map(({name}) => 60 + LETTER_WIDTH * name.length);
  const columns = Math.max(1, Math.floor(inside() / Math.max(...widths)));
  const rows = widths.reduce((sum, one) => sum + one, 0) <= inside() ? 1 : Math.ceil(widths.length / columns);
  return GAP + 0.65 * (rows - 1);
}
/* Digits of a time that tell two points of the line apart. */
const timeDigits = Math.min(6, Math.max(0, Math.ceil(-Math.log10((data.chart.range[1] - data.chart.range[0]) / 2000))));

function traces(look) {
  const bars = data.chart.bars.map(bar => ({
    type: "bar", orientation: "h", yaxis: "y4", showlegend: false, name: "",
    base: bar.base, x: bar.width, y: bar.lane, width: bar.base.map(() => 0.86),
    marker: {color: bar.colour, line: {width: 0.6, color: bar.colour},
      pattern: {shape: bar.pattern, fgcolor: "#ffffff", fillmode: "overlay", size: 6}},
    text: bar.names.map(name => plain(name)), textposition: "inside", insidetextanchor: "middle", constraintext: "inside",
    textangle: 0, textfont: {color: bar.ink, size: 11},
    customdata: bar.hover.map(text => plain(text)), hovertemplate: "%{customdata}<extra></extra>",
  }));
  const kinds = data.chart.kinds.map(kind => ({
    type: "scatter", mode: "lines", stackgroup: "kinds", stackgaps: "infer zero", yaxis: "y5", legend: "legend5", name: plain(kind.name),
    x: kind.x, y: kind.y, line: {width: 0, color: kind.colour}, fillcolor: kind.colour,
    fillpattern: {shape: kind.pattern, bgcolor: kind.colour, fgcolor: "#ffffff", fillmode: "overlay", size: 5},
    hovertemplate: `%{y:,.1f} ${kind.unit}<extra>${plain(kind.name)}</extra>`,
  }));
  const lines = panels.filter(([, part]) => part !== "kinds").flatMap(([axis, part]) => data.chart[part].map((line, place) => ({
    type: "scatter", mode: line.steps || line.limit || line.x.length > 60 ? "lines" : "lines+markers", yaxis: axis, name: plain(line.name),
    x: line.x, y: line.y, connectgaps: false, cliponaxis: line.x.length > 60, visible: line.hidden ? "legendonly" : true,
    line: {width: place ? 1.3 : 1.8, shape: line.steps ? "hv" : "linear", dash: line.limit ? "6px,4px" : DASHES[Math.floor(place / 8) % 3],
      color: look.lines[(line.limit ? 0 : place) % look.lines.length]},
    marker: {size: 5}, legend: {y: "legend", y2: "legend2", y3: "legend3"}[axis],
    hovertemplate: `%{y:${line.format}} ${line.unit}<extra>${plain(line.name)}</extra>`, hoverinfo: line.limit ? "skip" : "all",
  })));
  return [...bars, ...kinds, ...lines];
}
/* The text of the peak, inside of the panel however narrow it is. */
function peakText(look, range) {
  const {x, y, text, below} = data.chart.peak;
  const letters = Math.max(20, Math.floor(inside() / LETTER_WIDTH) - 4);
  const lines = [`<b>${plain(text, letters)}</b>`, ...(below ? [`<span style="font-size:11px">${plain(below, letters)}</span>`] : [])];
  const wide = Math.min(letters, Math.max(text.length, below.length * 0.9)) * LETTER_WIDTH * 1.06;
  const at = (x - range[0]) / (range[1] - range[0]) * inside();
  const wanted = at < inside() / 2 ? at + 30 + wide / 2 : at - 30 - wide / 2;
  const middle = Math.min(Math.max(wanted, wide / 2 + 2), Math.max(wide / 2 + 2, inside() - wide / 2 - 2));
  return {x, y, text: lines.join("<br>"), showarrow: true, arrowhead: 0, arrowwidth: 1, ax: middle - at, ay: -12, xanchor: "center", yanchor: "bottom",
    align: "left", arrowcolor: look.faint, font: {color: look.ink, size: 12}, bgcolor: `${look.paper}d0`, borderpad: 2};
}
function layout(look, range) {
  const whole = heights.reduce((sum, [, part, high], place) => sum + high + (place ? gapAbove(part) : 0), 0);
  const above = ABOVE + (lanes ? 0 : PIXELS * (gapAbove(heights[0][1]) - GAP) + (width() < NARROW ? BUTTONS : 0));
  const made = {
    height: whole * (printing ? PRINTED_PIXELS : PIXELS) + above + BELOW, margin: {l: LEFT, r: RIGHT, t: above, b: BELOW}, ...size(),
    paper_bgcolor: look.paper, plot_bgcolor: look.paper, font: {family: "system-ui, sans-serif", size: 12, color: look.ink},
    barmode: "overlay", uniformtext: {mode: "hide", minsize: 10}, hovermode: "x unified", hoversubplots: "axis",
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    hoverlabel: {bgcolor: look.paper, bordercolor: look.line, font: {color: look.ink}, namelength: -1, align: "left"},
    xaxis: {title: {text: `Time (${data.chart.time_unit})`, font: {color: look.faint}, standoff: 8}, range,
      gridcolor: look.line, zeroline: false, anchor: panels.length ? panels.at(-1)[0] : "y4",
      showspikes: true, spikemode: "across", spikethickness: 1, spikecolor: look.faint, spikedash: "dot",
      hoverformat: `,.${timeDigits}f`, unifiedhovertitle: {text: `%{x:,.${timeDigits}f} ${data.chart.time_unit}`}},
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
      : {domain, title: {text: data.chart.axes[part].replace(", ", high < 6 ? ",<br>" : ", "), font: {color: look.faint}, standoff: 4},
        gridcolor: look.line, zeroline: false, rangemode: "tozero", automargin: true, tickformat: ",~r", fixedrange: true,
        ...(high < 6 ? {nticks: 5} : {}), ...(part === "memory" && data.chart.from_zero ? {rangemode: "normal"} : {})};
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
  if (peak) made.annotations.push(peakText(look, range));
  if (chosen) {
    made.shapes.push({type: "rect", xref: "x", yref: "paper", x0: chosen[0], x1: chosen[1], y0: 0, y1: 1,
      fillcolor: look.ink, opacity: 0.09, line: {width: 1, color: look.ink}, layer: "below"});
  }
  return made;
}
/* The span of the chosen row, on the time axis. */
let chosen = null;
/* Draw the chart; ``range`` is the part of the time to show, by default the part that is shown. */
function show(range = chart.layout?.xaxis?.range?.map(Number) ?? data.chart.range) {
  const look = theme(), drawn = traces(look);
  for (const trace of drawn) {
    const before = chart.data?.find(other => trace.type === "scatter" && other.yaxis === trace.yaxis && other.name === trace.name);
    if (before) trace.visible = before.visible;
  }
  return Plotly.react(chart, drawn, layout(look, [...range]), {responsive: false, displaylogo: false, displayModeBar: "hover",
    doubleClick: false, modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]],
    toImageButtonOptions: {format: "svg"}});
}
