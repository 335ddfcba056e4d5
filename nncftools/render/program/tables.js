"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const chart = document.getElementById("chart");

function put(selector, text) {
  document.querySelector(selector).textContent = text;
}
function made(kind, fields, ...children) {
  const element = Object.assign(document.createElement(kind), fields);
  element.append(...children);
  return element;
}
/* Return the cells of a row; each knows its heading, which narrow screens show beside it. */
function cells(line, row, {labels, texts}) {
  line.append(...row.cells.map((text, place) => {
    const cell = made("td", {textContent: text, className: texts[place] ? "text" : ""});
    cell.dataset.heading = labels[place];
    return cell;
  }));
  line.classList.toggle("peak", row.strong);
}
/* Fill the table with this id; hide its section when it has no rows. */
function fill(part, draw) {
  const {headings, texts, rows, more} = data.tables[part];
  const table = document.getElementById(part), section = table.closest("section");
  if (!table.classList.contains("headless")) {
    table.createTHead().insertRow().append(...headings.map((text, place) =>
      made("th", {textContent: text, className: texts[place] ? "text" : "", scope: "col"})));
  }
  const body = table.createTBody();
  const lines = rows.map(row => {
    const line = body.insertRow();
    cells(line, row, data.tables[part]);
    draw?.(line, row);
    return line;
  });
  section.hidden = !rows.length;
  section.querySelector(".more")?.append(more);
  return lines;
}

/* Show rows as cards where a table is wider than its place. */
function fit() {
  for (const table of document.querySelectorAll(".scroll > table")) {
    table.classList.remove("cards");
    table.classList.toggle("cards", table.offsetWidth > table.parentElement.clientWidth);
  }
}

/* What a cell is sorted by: its figure in bytes or seconds, its text, or null for unknown. */
const SIZES = {B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, KB: 1e3, MB: 1e6, GB: 1e9};
const TIMES = {h: 3600, min: 60, s: 1};
function sortedBy(text, isText) {
  if (isText) return text;
  const [number, unit] = text.replace(/[,≥≤]/g, "").match(/^[+-]?[\d.]+|[a-zA-Z]+/g) ?? [];
  if (number === undefined || Number.isNaN(Number(number))) return null;
  if (!(unit in TIMES)) return Number(number) * (SIZES[unit] ?? 1);
  return [...text.matchAll(/([\d.]+) (h|min|s)\b/g)].reduce((sum, [, value, of]) => sum + Number(value) * TIMES[of], 0);
}
function compared(one, other) {
  if (one === null || other === null) return (one === null) - (other === null);
  return typeof one === "string" ? one.localeCompare(other, "en", {numeric: true}) : one - other;
}

/* A table of rows inside of each other, which can be sorted, searched, folded and unfolded. */
function tree(part, place, levels, draw) {
  const {labels, texts, rows} = data.tables[part];
  const table = document.getElementById(part), section = table.closest("section");
  const lines = fill(part, draw);
  const roots = [], above = [];
  const nodes = lines.map((line, number) => {
    const row = rows[number], depth = row.depth;
    above.length = Math.min(above.length, depth);
    const node = {line, row, parent: above.at(-1) ?? null, children: [], number, open: depth + 1 < levels};
    (node.parent?.children ?? roots).push(node);
    while (above.length <= depth) above.push(node);
    const cell = line.cells[place];
    cell.className = "name text";
    for (const part of [cell, line]) part.style.setProperty("--depth", Math.min(depth, 12));
    return node;
  });
  const state = {column: null, isRising: true, words: ""};
  for (const node of nodes) {
    const button = made("button", {type: "button", className: "fold", hidden: !node.children.length});
    button.addEventListener("click", event => {
      event.stopPropagation();
      node.open = !node.open;
      show();
    });
    node.button = button;
    node.line.cells[place].prepend(button);
    node.text = [...node.line.cells].map(cell => cell.textContent).join(" ").concat(" ", node.row.details, " ", node.row.whole ?? "").toLowerCase();
  }
  function inOrder(siblings) {
    if (state.column === null) return siblings;
    const key = node => sortedBy(node.row.cells[state.column], texts[state.column]);
    const keyed = siblings.map(node => [key(node), node]);
    const sign = state.isRising ? 1 : -1;
    return keyed.sort(([one, first], [other, second]) =>
      (one === null || other === null ? compared(one, other) : sign * compared(one, other)) || first.number - second.number).map(([, node]) => node);
  }
  /* Lay out what is shown; what was found is shown with the rows around it. */
  function show() {
    const words = state.words.trim().toLowerCase();
    const isFound = new Set(words ? nodes.filter(node => node.text.includes(words)) : nodes);
    const shown = new Set(isFound);
    if (words) for (let node of isFound) while ((node = node.parent)) shown.add(node);
    const order = [];
    const visit = (siblings, isVisible) => {
      for (const node of inOrder(siblings)) {
        const isShown = isVisible && shown.has(node);
        node.line.hidden = !isShown;
        node.line.classList.toggle("around", Boolean(words) && !isFound.has(node));
        node.button.textContent = node.open ? "▾" : "▸";
        node.button.setAttribute("aria-expanded", node.open);
        node.button.ariaLabel = node.open ? "hide what is inside" : "show what is inside";
        order.push(node.line);
        visit(node.children, isShown && (node.open || Boolean(words)));
      }
    };
    visit(roots, true);
    table.tBodies[0].append(...order);
    section.querySelector("output").textContent = words ? `${isFound.size || "none"} of ${nodes.length}` : "";
    heads.forEach((head, column) => head.ariaSort = column === state.column ? (state.isRising ? "ascending" : "descending") : "none");
    select.value = state.column === null ? "" : `${state.column}`;
  }
  /* Sort by a column: figures first fall, texts first rise; the third time is the order of the run. */
  function sortBy(column) {
    const first = texts[column];
    if (state.column !== column) Object.assign(state, {column, isRising: first});
    else if (state.isRising === first) state.isRising = !first;
    else state.column = null;
    show();
  }
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = made("button", {type: "button", title: "sort"}, ...head.childNodes);
    button.addEventListener("click", () => sortBy(column));
    head.replaceChildren(button);
  });
  const form = section.querySelector("form");
  form.querySelector("input").addEventListener("input", event => {
    state.words = event.target.value;
    show();
  });
  const select = form.querySelector("select");
  select.append(made("option", {value: "", textContent: "in order"}),
    ...labels.map((text, column) => made("option", {value: column, textContent: text})));
  select.addEventListener("change", () => {
    Object.assign(state, {column: select.value === "" ? null : Number(select.value), isRising: texts[Number(select.value)]});
    show();
  });
  const all = form.querySelector("button");
  all.hidden = !nodes.some(node => node.children.length);
  all.addEventListener("click", () => {
    const open = nodes.some(node => node.children.length && !node.open);
    for (const node of nodes) node.open = open;
    show();
  });
  show();
  /* Make a row visible, whatever was folded or searched. */
  const reveal = node => {
    if (node.line.hidden) {
      form.querySelector("input").value = state.words = "";
      for (let of = node.parent; of; of = of.parent) of.open = true;
      show();
    }
    node.line.scrollIntoView({block: "nearest"});
  };
  return {nodes, reveal};
}
