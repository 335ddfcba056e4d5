/* The flame graph: boxes are numbers; the first one is the whole peak. */
const flame = data.flame;
const icicle = document.getElementById("icicle");
const IMPORT = "import ";
/* Less certain boxes are hatched. */
const CERTAIN = 0.5, HATCHED = 0.35;
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
/* Return whether a function holds memory that is mostly not certain. */
function isLikely(box) {
  return Boolean(flame.place[box]) && flame.certain[box] < flame.size[box] * CERTAIN;
}
function boxHover(box) {
  const certain = flame.certain[box] === flame.size[box] ? "all of it certain" : `${sizeText(flame.certain[box])} of it certain`;
  const known = flame.place[box] || !box || flame.certain[box] ? `<br>${certain}` : "";
  const place = flame.place[box] ? `<br>${plain(flame.place[box])}` : "";
  return `<b>${plain(flame.name[box])}</b>${place}<br>${sizeText(flame.size[box])}, ${shareText(flame.size[box])} of the peak${known}`;
}
function showFlame() {
  const look = theme();
  const matches = found();
  tell(matches);
  const isFound = matches?.includes(true);
  const levels = Math.min(deepest[zoomed], MOST_ROWS);
  const looks = flame.package.map((of, box) => ({...(flame.packages[of] ?? flame.rest), faint: isFound && !matches[box]}));
  const colours = looks.map(of => of.faint ? mixed(of.colour, look.paper, FAINT) : of.colour);
  const wide = printing ? PRINTED : icicle.clientWidth;
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
    customdata: ids.map((_, box) => boxHover(box)), hovertemplate: "%{customdata}<extra></extra>",
    insidetextfont: font, outsidetextfont: font, root: {color: "rgba(0,0,0,0)"}, leaf: {opacity: 1},
    marker: {
      colors: colours,
      line: {width: 0},
      pattern: {
        shape: looks.map((_, box) => isLikely(box) ? "/" : ""), bgcolor: colours, fillmode: "replace",
        fgcolor: colours.map(of => mixed(of, look.paper, HATCHED)), size: 7, solidity: 0.25,
      },
    },
  };
  const layout = {
    height: levels * ROW + 2, margin: {l: 0, r: 0, t: 0, b: 0}, ...size(), paper_bgcolor: look.paper,
    font: {family: "system-ui, sans-serif", size: 12, color: look.ink},
    hoverlabel: {bgcolor: look.paper, bordercolor: look.line, font: {color: look.ink}, align: "left"},
  };
  return Plotly.react(icicle, [trace], layout, {responsive: false, displayModeBar: false});
}
function zoomFlame(box) {
  zoomed = box === zoomed ? flame.parent[box] ?? 0 : box;
  showFlame();
}
function startFlame() {
  const section = document.getElementById("flame");
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
  section.querySelector("input").addEventListener("input", event => {
    sought = event.target.value;
    showFlame();
  });
  showFlame().then(() => icicle.on("plotly_icicleclick", event => {
    zoomFlame(event.points[0].pointNumber);
    return false;
  }));
}
