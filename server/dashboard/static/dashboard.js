// The dashboard's only script: pages that stay current, and charts. Pages are whole without it.

const twin = () => `${location.pathname}.json${location.search}`;

// Pages that stay current: when the server says there is news, the page is fetched again and what differs is replaced.
// Focus, scrolling, open details and what was typed stay as they are.

function renew(old, fresh) {
  if (old.isEqualNode(fresh) || old.classList?.contains("plot")) return;
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) return old.replaceWith(fresh);
  if (old.nodeType !== Node.ELEMENT_NODE) { old.nodeValue = fresh.nodeValue; return; }
  if (old.matches("input")) return;
  if (old.matches("select")) { const chosen = old.value; old.replaceChildren(...fresh.childNodes); old.value = chosen; return; }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  const was = [...old.childNodes], is = [...fresh.childNodes];
  is.forEach((node, place) => (place < was.length ? renew(was[place], node) : old.append(node)));
  was.slice(is.length).forEach((node) => node.remove());
}

async function refresh() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (answer.redirected) return location.reload();  // the session has ended
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  renew(document.getElementById("main"), document.adoptNode(fresh.getElementById("main")));
  await drawCharts();
}

let stream = null, refreshing = false, again = false;

async function news() {
  if (refreshing) { again = true; return; }
  refreshing = true;
  do { again = false; await refresh().catch(() => {}); } while (again);
  refreshing = false;
}

function say(state, words) {
  document.getElementById("live").className = `live ${state}`;
  const place = document.getElementById("live-words");
  if (place.textContent !== words) place.textContent = words;
}

function listen() {
  stream = new EventSource("/events");
  let missed = false;
  stream.addEventListener("hello", () => { say("on", "Live"); if (missed) news(); missed = false; });
  stream.addEventListener("news", news);
  stream.addEventListener("error", () => { missed = true; say("off", "Not connected: as last seen"); });
}

// A hidden page needs no news; browsers allow few streams to one server.
function attend() {
  if (document.hidden) { stream?.close(); stream = null; } else if (!stream) { listen(); news(); }
}

// Charts: each figure names the part of the page's twin that it shows.

const charts = new Map();
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const digits = (value) => (value == null ? "–" : Number(value.toPrecision(4)).toString());
const percent = (value) => (value == null ? "–" : `${(100 * value).toFixed(1)} %`);

/** One column of x for all series; points of a series that share an x are moved apart by less than can be seen. */
function columns(chart) {
  const rows = chart.series.map(({ x, y, low, high, names }) => {
    const found = new Map();
    x.forEach((value, place) => {
      while (found.has(value)) value += Math.max(Math.abs(value), 1) * 1e-9;
      found.set(value, { y: y[place], low: low[place], high: high[place], name: names[place] });
    });
    return found;
  });
  const x = [...new Set(rows.flatMap((row) => [...row.keys()]))].sort((a, b) => a - b);
  return { x, points: rows.map((row) => x.map((value) => row.get(value) ?? null)) };
}

function intervals(plot, points, paints) {
  const { ctx } = plot, size = devicePixelRatio, taken = [];
  points.forEach((row, place) => row.forEach((point, at) => {
    if (!point || !plot.series[place + 1].show) return;
    const x = plot.valToPos(plot.data[0][at], "x", true);
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = paints[place];
    ctx.lineWidth = 2 * size;
    if (point.low != null) {
      ctx.beginPath();
      ctx.moveTo(x, plot.valToPos(point.low, "y", true));
      ctx.lineTo(x, plot.valToPos(point.high, "y", true));
      ctx.stroke();
    }
    const y = plot.valToPos(point.y, "y", true) - 6 * size;
    if (point.name && !taken.some((other) => Math.abs(other.x - x) < 70 * size && Math.abs(other.y - y) < 13 * size)) {
      taken.push({ x, y });
      ctx.fillStyle = colour("--soft");
      ctx.textAlign = "left";
      ctx.textBaseline = "alphabetic";
      ctx.font = `${12 * size}px system-ui, sans-serif`;
      ctx.fillText(point.name, x + 7 * size, y);
    }
    ctx.restore();
  }));
}

function axis(chart, which) {
  const shares = chart.percent.includes(which), names = which === "x" ? chart.x_names : [];
  const values = (plot, marks) => marks.map((mark) =>
    mark == null ? "" : names.length ? (names[mark] ?? "") : shares ? `${digits(100 * mark)} %` : digits(mark));
  return {
    label: chart[`${which}_label`], labelFont: "13px system-ui, sans-serif", font: "12px system-ui, sans-serif", labelSize: 26,
    stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 },
    values, ...(names.length ? { incrs: [1, 2, 5, 10, 20, 50], space: 70 } : {}), ...(which === "y" ? { size: 62 } : {}),
  };
}

function scales(chart, points) {
  const log = (which) => (chart.logarithmic.includes(which) ? { distr: 3 } : {});
  const ys = points.flat().filter(Boolean).flatMap(({ y, low, high }) => [y, low, high]).filter((value) => value != null);
  const least = Math.min(...ys), most = Math.max(...ys), room = (most - least || Math.abs(most) || 1) * 0.12;
  const wide = chart.percent.includes("y");
  const y = chart.logarithmic.includes("y") ? {} : {
    range: [wide ? Math.max(0, least - room) : Math.min(0, least), wide ? Math.min(1, most + room) : most + room] };
  const x = chart.x_names.length ? { range: [-0.3, chart.x_names.length - 0.7] }
    : chart.style === "points" ? { range: (plot, low, high) => [Math.max(0, low - (high - low || low) * 0.15), high + (high - low || high) * 0.2] } : {};
  return { x: { time: false, ...log("x"), ...x }, y: { ...log("y"), ...y } };
}

function options(chart, points, width) {
  const paints = chart.series.map((_, place) => colour(`--c${1 + (place % 6)}`));
  const shares = chart.percent.includes("y") ? percent : digits;
  // Silos often spend alike: the first lines are the broadest, so that those above do not hide them.
  const under = (place) => (chart.style === "steps" ? 2 * Math.min(chart.series.length - 1 - place, 4) : 0);
  const series = chart.series.map(({ name }, place) => ({
    label: name, stroke: paints[place], width: chart.style === "points" ? 0 : 2 + under(place), spanGaps: true,
    points: { show: chart.style !== "line", size: 8 + 2 * under(place), fill: paints[place] },
    ...(chart.style === "steps" ? { paths: uPlot.paths.stepped({ align: 1 }) } : chart.style === "points" ? { paths: () => null } : {}),
    value: (plot, value, _series, at) => (at == null || !points[place][at] ? "" : [points[place][at].name, shares(value)].filter(Boolean).join(" ")),
  }));
  const label = (plot, value) => (value == null ? "" : chart.x_names[value] ?? digits(value));
  return {
    width, height: 300, scales: scales(chart, points), axes: [axis(chart, "x"), axis(chart, "y")],
    series: [{ label: chart.x_label, value: label }, ...series], cursor: { drag: { x: false, y: false } },
    legend: { markers: { fill: (plot, place) => paints[place - 1] } },
    hooks: { draw: [(plot) => intervals(plot, points, paints)] },
  };
}

function draw(place, chart) {
  const { x, points } = columns(chart);
  const known = charts.get(place);
  known?.plot.destroy();
  const data = [x, ...points.map((row) => row.map((point) => point?.y ?? null))];
  const plot = new uPlot(options(chart, points, place.clientWidth), data, place);
  charts.set(place, { plot, chart, text: JSON.stringify(chart) });
}

async function drawCharts() {
  const figures = [...document.querySelectorAll("[data-chart]")];
  if (!figures.length) return;
  const { data } = await (await fetch(twin())).json();
  for (const figure of figures) {
    const chart = figure.dataset.chart.split(".").reduce((part, name) => part?.[name], data);
    const place = figure.querySelector(".plot");
    if (chart && charts.get(place)?.text !== JSON.stringify(chart)) draw(place, chart);
  }
}

function redraw() {
  for (const [place, { chart }] of charts) place.isConnected ? draw(place, chart) : charts.delete(place);
}

// The rest of the frame.

function showTags() {
  const button = document.getElementById("show-tags");
  button?.addEventListener("click", () => {
    const shown = document.documentElement.classList.toggle("show-tags");
    button.setAttribute("aria-pressed", String(shown));
  });
}

const link = document.getElementById("twin");
if (link) link.href = twin();
showTags();
drawCharts();
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
if (document.getElementById("live")) {
  document.addEventListener("visibilitychange", attend);
  listen();
}
