"use strict";
const find = selector => document.querySelector(selector);
const findAll = selector => [...document.querySelectorAll(selector)];
const data = JSON.parse(find("#data").textContent);
const chart = find("#chart"), icicle = find("#icicle"), narrow = matchMedia("screen and (max-width: 700px)");
const UNITS = {KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, KB: 1e3, MB: 1e6, GB: 1e9, s: 1, min: 60, h: 3600};
const DOUBLE_CLICK_MS = 300, PRINTED = 690, FAINT = "#8a8f94", TRANSPARENT = "30";
/* Return the bytes or seconds in a cell, with a sign; unknown figures are last. */
function figure(text, sign) {
  const parts = [...text.replace(/,/g, "").matchAll(/([+-]?\d[\d.]*) ?([a-zA-Z]*)/g)];
  const sizes = parts.map(([, number, unit], place) => sign * number * (UNITS[unit] ?? !place));
  return sizes.length ? sizes.reduce((one, other) => one + other) : Infinity;
}
/* Let the rows of a table be sorted, searched and folded; return the rows as nodes, and a function that shows a row. */
function tree(table) {
  const section = table.closest("section"), heads = [...table.tHead.rows[0].cells], above = [];
  const [search, select, all, output] = section.querySelectorAll("input, select, output");
  const isText = heads.map(head => head.className === "text"), {levels} = table.dataset;
  select.append(new Option("in order", -1), ...heads.map((head, column) => new Option(head.title, column)));
  let isRising = true;
  const nodes = [...table.tBodies[0].rows].map((line, number) => {
    const depth = above.length = Number(line.dataset.depth), span = line.dataset.span?.split(" ").map(Number);
    const node = {line, number, depth, span, parent: above.filter(Boolean).at(-1), children: []};
    node.text = `${line.textContent} ${line.title}`.toLowerCase();
    node.isOpen = depth + 1 < levels;
    node.parent?.children.push(node);
    return above[depth] = node;
  });
  function show() {
    const words = search.value.trim().toLowerCase(), column = Number(select.value), sign = isRising ? 1 : -1;
    const found = new Set(nodes.filter(node => node.text.includes(words))), around = new Set(found);
    for (let node of found) while ((node = node.parent)) around.add(node);
    const text = node => node.line.cells[column].textContent;
    const order = (one, other) => column < 0 ? one.number - other.number
      : isText[column] ? sign * text(one).localeCompare(text(other), "en", {numeric: true})
      : figure(text(one), sign) - figure(text(other), sign);
    const place = (siblings, isVisible) => siblings.sort(order).forEach(node => {
      node.line.hidden = !isVisible || !around.has(node);
      node.line.classList.toggle("around", !found.has(node));
      node.line.querySelector(".fold")?.setAttribute("aria-expanded", node.isOpen);
      table.tBodies[0].append(node.line);
      place(node.children, isVisible && (node.isOpen || words));
    });
    place(nodes.filter(node => !node.parent), true);
    output.textContent = words && `${found.size || "none"} of ${nodes.length}`;
    heads.forEach((head, at) => head.ariaSort = at !== column ? "none" : isRising ? "ascending" : "descending");
  }
  const listen = (element, kind, change) => element?.addEventListener(kind, () => { change(); show(); });
  const sortBy = (column, isUpwards) => { [select.value, isRising] = [column, isUpwards]; };
  heads.forEach((head, at) => listen(head, "click", () => sortBy(at, at === +select.value ? !isRising : isText[at])));
  listen(select, "change", () => sortBy(select.value, isText[select.value] ?? true));
  listen(search, "input", () => {});
  listen(all, "change", () => nodes.forEach(node => node.isOpen = all.checked || node.depth + 1 < levels));
  nodes.forEach(node => listen(node.line.querySelector(".fold"), "click", () => { node.isOpen = !node.isOpen; }));
  show();
  return {nodes, reveal(node) {
    search.value = "";
    for (let outer = node.parent; outer; outer = outer.parent) outer.isOpen = true;
    show();
    node.line.scrollIntoView({block: "nearest"});
  }};
}
/* Hide the last columns of tables that are too wide. */
function fitTables() {
  for (const table of findAll(".scroll > table")) {
    table.classList.remove("few");
    table.classList.toggle("few", table.offsetWidth > table.parentElement.clientWidth);
  }
}
const [operations, processes] = ["#operations", "#processes"].map(id => tree(find(id)));
const {layouts, lanes} = data.chart, whole = layouts[0].xaxis.range;
function plot(place, {traces, layouts: [wide, other]}) {
  const layout = structuredClone(narrow.matches && other || wide), {template, config} = data.look;
  layout.dragmode = matchMedia("(pointer: coarse)").matches ? false : "zoom";
  return Plotly.react(place, structuredClone(traces), {...layout, template}, config);
}
/* Mark a row and its time in the chart, and show a range of the time. */
function choose(node, range = chart.layout.xaxis.range) {
  findAll("tr").forEach(line => line.classList.toggle("on", line === node?.line));
  find("#chosen span").textContent = node?.line.dataset.name ?? "";
  const [x0, x1] = node?.span ?? [], visible = Boolean(node?.span);
  const shape = {x0, x1, visible, yref: "paper", fillcolor: "#202124", opacity: 0.1, line: {width: 1}};
  Plotly.relayout(chart, {shapes: [...layouts[0].shapes, shape], "xaxis.range": range});
}
/* Link rows and chart: a click on a row zooms to the time of the row, a click in the chart finds the row. */
function link() {
  let waiting = 0;
  for (const node of [...operations.nodes, ...processes.nodes].filter(({span}) => span)) {
    const [start, end] = node.span, beside = Math.max((end - start) * 0.04, whole[1] * 0.004);
    const zoom = ({target}) => target.className === "fold" || choose(node, [start - beside, end + beside]);
    node.line.addEventListener("click", zoom);
    node.line.addEventListener("keydown", event => event.key === "Enter" && zoom(event));
  }
  const showAt = (moment, lane) => {
    const isAround = ({span}) => span && span[0] <= moment && moment <= span[1];
    const around = operations.nodes.filter(isAround).sort((one, other) => other.depth - one.depth);
    const node = lane === null ? around[0] : around.find(({line}) => line.dataset.lane === `${lane}`);
    processes.nodes.forEach(process => process.line.classList.toggle("alive", isAround(process)));
    choose(node);
    if (node) operations.reveal(node);
  };
  const showAll = () => { clearTimeout(waiting); choose(null, whole); };
  chart.on("plotly_click", ({event: {clientX, clientY, target}}) => {
    const {left, top, width, height} = target.getBoundingClientRect(), [first, last] = chart.layout.xaxis.range;
    const lane = target.dataset.subplot === "xy" ? Math.floor((clientY - top) / height * lanes) : null;
    clearTimeout(waiting);
    waiting = setTimeout(showAt, DOUBLE_CLICK_MS, first + (clientX - left) / width * (last - first), lane);
  });
  chart.on("plotly_doubleclick", showAll);
  find("#chosen button").addEventListener("click", showAll);
  narrow.addEventListener("change", () => Plotly.relayout(chart, {
    ...structuredClone(layouts[Number(narrow.matches)]), xaxis: chart.layout.xaxis, shapes: chart.layout.shapes}));
}
/* Make boxes faint that do not match the search, and show the memory of the others. Boxes in boxes count once. */
function seek({target}) {
  const [{parents, values, customdata, marker, insidetextfont}] = data.flame.traces, {unit, bytes, digits} = data.flame;
  const words = target.value.trim().toLowerCase(), inside = [];
  const isFound = customdata.map(texts => words && texts.some(text => text.toLowerCase().includes(words)));
  const count = isFound.filter(Boolean).length;
  const size = values.reduce((sum, value, box) => {
    inside[box] = inside[parents[box]] || isFound[parents[box]];
    return sum + (isFound[box] && !inside[box] ? value : 0);
  }, 0);
  const shown = (size / bytes).toLocaleString("en", {minimumFractionDigits: digits, maximumFractionDigits: digits});
  const share = `${(100 * size / values[0]).toFixed(1)} % of the peak, in ${count} box${count > 1 ? "es" : ""}`;
  find("#flame output").textContent = words && (count ? `${shown} ${unit}, ${share}` : "not found");
  const faint = (colours, instead) => [colours.map((colour, box) => count && !isFound[box] ? instead(colour) : colour)];
  const colors = faint(marker.colors, colour => colour + TRANSPARENT);
  Plotly.restyle(icicle, {"marker.colors": colors, "insidetextfont.color": faint(insidetextfont.color, () => FAINT)});
}
async function start() {
  const figures = [[chart, data.chart], [icicle, data.flame]].filter(([, of]) => of?.traces.length);
  if (!figures.length) return;
  const packed = Uint8Array.from(atob(find("#plotly").textContent), letter => letter.charCodeAt(0));
  const unpacked = new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate")));
  document.head.append(Object.assign(document.createElement("script"), {textContent: await unpacked.text()}));
  await Promise.all(figures.map(([place, of]) => plot(place, of)));
  if (data.chart.traces.length) link();
  find("#flame input").addEventListener("input", seek);
  for (const [when, size] of [["beforeprint", {width: PRINTED}], ["afterprint", {width: null, autosize: true}]]) {
    addEventListener(when, () => figures.forEach(([place]) => Plotly.relayout(place, size)));
  }
}
fitTables();
addEventListener("resize", fitTables);
/* The page counts as loaded when the charts are drawn: a frame that is still open for writing delays that. */
find("iframe").contentDocument.open();
start().catch(({message}) => {
  chart.innerText = `This browser cannot draw the charts: ${message}. Chrome and Edge 98, Firefox 113, Safari 16.4 can.`;
  find("#flame").hidden = true;
}).finally(() => find("iframe").remove());
