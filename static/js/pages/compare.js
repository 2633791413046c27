// Curves and tables of several trainings, kept live: new points come by the topic of each job; what its events do not
// tell (a line that begins, the step at which the number of GPUs changed, the words of the tables) is fetched.

import { ChartOrder } from "../chart_order.js";
import { Choices } from "../choices.js";
import { asText, Figure, mayName, placeEnds, readJson, seenOn, themeColour } from "../figure.js";
import { refresher, renderAt } from "../fresh.js";
import { keyOf, showLegend } from "../legend.js";
import { outlineOf, spanOf } from "../line_groups.js";
import { addPoint, allPoints, asLine, epochsOf, modeOf, NO_FILE, notOnLogAxis, smoothed, thinnedWords, valueAxis } from "../lines.js";
import { atMostEvery, fetchJson, jobTopic, live } from "../live.js";
import { say } from "../toasts.js";
import { isOver } from "../words.js";

const MINUTE = 60;
//: A letter at the end of a line takes this beside the plot.
const LETTER_PX = 28;
//: Many changes at once are one fetch.
const SOON_MS = 1_000;
//: Points of the figures have their seconds with one digit.
const ROUNDED = 0.06;
const RAW_OPACITY = 0.2;
//: Opacity of a band, as the last digits of a colour.
const BAND_OPACITY = "2e";
//: Significant digits of a span's ends.
const DIGITS = 4;
const COLUMNS_KEY = "tidepool-compare-columns";
const TITLES = { step: "Step", time: "Minutes since start", epoch: "Epochs done", samples: "Samples" };
const READOUTS = { step: "Step %{x}", time: "%{x:.1f} min", epoch: "%{x:.2f} epochs", samples: "%{x:,} samples" };
const NOT_GROUPED = "The tables still have the groups of before: the server did not answer. Choose the grouping again.";
const BY_FINGER = matchMedia("(pointer: coarse)");

const page = readJson("live-comparison");
const compared = document.getElementById("compared");
const section = document.querySelector(".compared-curves");

// --- State that all charts share: the axis, the range, the hidden trainings -------------------------------------------

//: Charts by the title of their quantity, in the order of the page.
const charts = new Map();
const takenAway = new Set();
//: Null: as far as the lines go.
let shown = null;
let axis = "step";
//: One control says it for all charts.
let wantsLog = false;
let places = new Map();
//: Groups of trainings of which each is one line; null: each training is.
let groups = null;

const choices = section && new Choices(section, { changed: follow, whole: showAll });
const order = section && new ChartOrder(arrange);

//: The panels as the person wants them; a chart that comes to sight is drawn.
function arrange() {
  for (const [place, title] of order.sorted().entries()) {
    const { panel } = charts.get(title);
    panel.style.order = place;
    panel.hidden = !order.isSeen(title);
  }
  order.unchosen.hidden = charts.size === 0 || [...charts.keys()].some((title) => order.isSeen(title));
  drawAll();
}

function settle() {
  const epochs = new Map(page.jobs.map(({ job }) => [job, epochsOf(longestOf(job))]));
  const sizes = new Map(page.jobs.map(({ job, samples_per_step: each }) => [job, each]));
  const hasAny = (values) => [...values.values()].some(Boolean);
  axis = choices.axisOf(new Set(["step", "time", hasAny(epochs) && "epoch", hasAny(sizes) && "samples"].filter(Boolean)));
  places = new Map(page.jobs.map(({ job }) => [job, placeOf(epochs.get(job), sizes.get(job))]));
  wantsLog = [...charts.values()].some((chart) => chart.mayBeLog() && choices.isLog(chart.values()));
}

//: Function from a point of a training to its place on the axis; null for a training without such an axis.
function placeOf(epochs, samples) {
  if (axis === "time") return ({ at }) => at / MINUTE;
  if (axis === "epoch") return epochs && (({ step }) => epochs[0] * step + epochs[1]);
  if (axis === "samples") return samples && (({ step }) => samples * step);
  return ({ step }) => step;
}

function longestOf(job) {
  const lines = [...charts.values()].flatMap((chart) => chart.lines).filter(({ trace }) => trace.meta.job === job && trace.meta.metric);
  return lines.reduce((best, { points }) => (points.length > best.length ? points : best), []);
}

function drawAll() {
  settle();
  for (const chart of charts.values()) if (!chart.panel.hidden) chart.draw();
  choices.showScale([...charts.values()].some(({ isLog }) => isLog));
  choices.showWhole([...charts.values()].some((chart) => chart.isZoomed()));
  showLegend(document.getElementById("compare-legend"), groups?.map(nameOfGroup) ?? page.jobs.map(nameOfJob), takenAway, toggle);
}

function nameOfJob({ job, label, look }) {
  return { key: String(job), text: `${look.letter} · ${label}`, colour: seenOn(themeColour("--surface"), look.colour), look: "line" };
}

function nameOfGroup({ key, number, name, colour, jobs }) {
  const count = jobs.length === 1 ? "1 training" : `${jobs.length} trainings`;
  return { key, text: `${number} · ${name} (${count})`, colour: seenOn(themeColour("--surface"), colour), look: "line" };
}

//: Number of lines that a chart may have.
function lineCount() {
  return (groups ?? page.jobs).length;
}

//: One zooms in one chart: the others follow at once, together.
function drawSoon() {
  cancelAnimationFrame(drawSoon.frame);
  drawSoon.frame = requestAnimationFrame(drawAll);
}

function toggle(job) {
  if (!takenAway.delete(job)) takenAway.add(job);
  drawAll();
}

function follow(name) {
  if (name === "axis") shown = null;
  drawAll();
}

function showAll() {
  shown = null;
  for (const { canvas } of charts.values()) if (canvas.layout) window.Plotly.relayout(canvas, { "yaxis.autorange": true, "xaxis.autorange": true });
}

// --- A chart ----------------------------------------------------------------------------------------------------------

class Comparison extends Figure {
  constructor(panel, figure) {
    super(panel, figure);
    this.take(figure);
  }

  take(figure) {
    this.figure = figure;
    this.takenAway = takenAway;
    this.lines = figure.data.map((trace) => asLine(trace, trace.meta.most));
  }

  lineOf(job) {
    return this.lines.find(({ trace: { meta }, points }) => meta.job === job && points.length > 0);
  }

  //: False if the training has no line here yet. (Of two metrics of the same quantity, one is drawn.)
  addPoint(job, { name, ...point }) {
    const line = this.lineOf(job);
    if (line?.trace.meta.metric === name && addPoint(line, point)) this.request();
    return line !== undefined;
  }

  config() {
    return { ...super.config(), doubleClick: "reset" };
  }

  hasData() {
    return this.drawnLines().length > 0;
  }

  drawnLines() {
    return this.lines.filter(({ trace, points }) => points.length > 0 && places.get(trace.meta.job));
  }

  mayBeLog() {
    return this.figure.layout.meta.may_be_log;
  }

  values() {
    return this.drawnLines().flatMap(({ points }) => points.map(({ value }) => value));
  }

  //: Points of a line; a value that is held lasts to the end of the training's longest line.
  pointsOf({ trace, points }) {
    const last = points.at(-1);
    const end = longestOf(trace.meta.job).at(-1);
    if (trace.line.shape !== "hv" || !end || end.at <= last.at) return points;
    return [...points, { ...end, value: last.value }];
  }

  traces() {
    return groups ? groups.flatMap((group) => this.tracesOfGroup(group)) : this.tracesOfJobs();
  }

  //: The line of each training is smoothed before the mean is taken.
  pointsOfGroup({ jobs }) {
    const lines = this.drawnLines().filter(({ trace }) => jobs.includes(trace.meta.job));
    const placed = lines.map((line) => {
      const points = this.pointsOf(line);
      const values = points.map(({ value }) => value);
      const place = places.get(line.trace.meta.job);
      return (this.isSmooth() ? smoothed(values, choices.smoothing) : values).map((value, index) => ({ x: place(points[index]), value }));
    });
    return spanOf(placed, this.isStepped());
  }

  tracesOfGroup(group) {
    const points = this.pointsOfGroup(group);
    if (!points.length) return [];
    const colour = seenOn(themeColour("--surface"), group.colour);
    const [{ trace }] = this.lines;
    const meta = { label: group.key };
    const band = { type: "scatter", mode: "lines", fill: "toself", fillcolor: `${colour}${BAND_OPACITY}`, line: { width: 0 }, hoverinfo: "skip" };
    const outline = outlineOf(points, { isStepped: this.isStepped(), isLog: this.usesLog() });
    const mean = {
      ...trace,
      name: asText(`${group.number} · ${group.name}`),
      meta,
      uid: group.key,
      mode: modeOf(trace, points),
      x: points.map(({ x }) => x),
      y: points.map(({ mean }) => mean),
      text: points.map(spanInWords),
      customdata: undefined,
      hovertemplate: "%{y:.4g}%{text}",
      line: { ...trace.line, color: colour, dash: "solid" },
    };
    return [{ ...band, ...outline, meta, showlegend: false, uid: `${group.key}-band` }, mean];
  }

  isStepped() {
    return this.lines[0].trace.line.shape === "hv";
  }

  isSmooth() {
    return this.figure.layout.meta.may_be_smooth && choices.smoothing > 0;
  }

  tracesOfJobs() {
    const ground = themeColour("--surface");
    return this.drawnLines().flatMap((line) => {
      const { trace } = line;
      const points = this.pointsOf(line);
      const raw = points.map(({ value }) => value);
      const look = {
        ...trace,
        mode: modeOf(trace, points),
        x: points.map(places.get(trace.meta.job)),
        customdata: undefined,
        line: { ...trace.line, color: seenOn(ground, trace.line.color) },
      };
      if (!this.isSmooth()) return [{ ...look, y: raw, uid: String(trace.meta.job) }];
      const faint = { ...look, y: raw, opacity: RAW_OPACITY, hoverinfo: "skip", hovertemplate: undefined, showlegend: false, uid: `${trace.meta.job} raw` };
      return [{ ...look, y: smoothed(raw, choices.smoothing), uid: String(trace.meta.job) }, faint];
    });
  }

  usesLog() {
    const values = this.values();
    //: A linear axis stays linear as long as a log axis would drop values, until somebody chooses Log.
    const losesAny = choices.scale === "auto" && values.some((value) => value !== null && value <= 0);
    return wantsLog && this.mayBeLog() && !losesAny && values.some((value) => value > 0);
  }

  prepare(layout) {
    this.isLog = this.usesLog();
    if (mayName([lineCount()])) layout.margin.r = LETTER_PX;
    layout.uirevision = "kept";
    layout.dragmode = BY_FINGER.matches ? false : choices.drag;
    Object.assign(layout.xaxis, {
      title: { text: TITLES[axis] },
      fixedrange: BY_FINGER.matches,
      uirevision: axis,
      unifiedhovertitle: { text: READOUTS[axis] },
    });
    if (shown) layout.xaxis.range = [...shown];
    Object.assign(layout.yaxis, valueAxis(this.isLog, this.values()), { fixedrange: BY_FINGER.matches });
  }

  isZoomed() {
    const { xaxis, yaxis } = this.canvas._fullLayout ?? {};
    return xaxis !== undefined && !(xaxis.autorange && yaxis.autorange);
  }

  //: The letter that the legend and the tables have for the training, or the number of the group.
  drawn() {
    this.listen();
    const ends = this.canvas.data
      .filter(({ visible, showlegend }) => visible !== false && showlegend !== false)
      .flatMap(({ x, y, name, line }) => {
        const last = y.findLastIndex((value) => value !== null);
        return last < 0 ? [] : [{ axis: "y", x: x[last], value: y[last], text: name.split(" ")[0], colour: line.color }];
      });
    placeEnds(this.panel.querySelector(".chart-ends"), this.canvas, mayName([lineCount()]) ? ends : []);
    const seen = this.drawnLines().filter(({ trace }) => keysOf(trace).some((key) => !takenAway.has(key)));
    this.panel.querySelector(".chart-note").textContent = [thinnedWords(this.lines), this.isLog ? notOnLogAxis(seen) : ""].filter(Boolean).join(" ");
  }

  //: A zoom in one chart is a zoom in all. A canvas emits events only after it was drawn.
  listen() {
    if (this.isListening) return;
    this.isListening = true;
    this.canvas.on("plotly_relayout", (changed) => {
      if ("xaxis.range[0]" in changed) shown = [changed["xaxis.range[0]"], changed["xaxis.range[1]"]];
      else if (changed["xaxis.autorange"]) shown = null;
      drawSoon();
    });
  }

  //: Not moments but places: all charts have the same axis.
  toMoment(value) {
    return value;
  }

  fromMoment(value) {
    return value;
  }

  columns() {
    return groups ? ["Group", "Trainings", TITLES[axis], "Mean", "Least", "Most"] : super.columns();
  }

  //: Rows of the table and of the CSV file: the drawn points.
  rows() {
    if (groups) return groups.flatMap((group) => this.pointsOfGroup(group).map(({ x, mean, least, most, count }) => [group.name, count, x, mean, least, most]));
    return this.lines.flatMap(rowsOf);
  }

  //: All values, where the lines are thinned; of groups, what is drawn.
  async saveCsv() {
    if (groups || this.lines.every(({ every }) => every === 1)) return super.saveCsv();
    try {
      this.saveRows((await Promise.all(this.lines.map(wholeLine))).flatMap(rowsOf));
    } catch {
      say(NO_FILE, { kind: "error" });
    }
  }
}

function rowsOf({ trace: { meta }, points }) {
  return points.map(({ step, at, value }) => [meta.label, step, at, value === null ? "not a number" : value]);
}

async function wholeLine({ trace, points, every }) {
  if (every === 1) return { trace, points };
  const job = page.jobs.find((one) => one.job === trace.meta.job);
  const whole = await allPoints(job.job, trace.meta.metric);
  return { trace, points: whole.map((point) => ({ ...point, at: secondsOf(job, point.at) })) };
}

//: Keys of the lines in the legend that show a training's line.
function keysOf(trace) {
  return groups?.filter(({ jobs }) => jobs.includes(trace.meta.job)).map(({ key }) => key) ?? [keyOf(trace)];
}

function spanInWords({ least, most, count }) {
  return count > 1 ? ` (${[least, most].map((value) => Number(value.toPrecision(DIGITS))).join(" to ")}, mean of ${count})` : "";
}

//: Charts that are new get a place, in the order of the figures.
function take(figures) {
  for (const [place, figure] of figures.entries()) {
    const { title } = figure.layout.meta;
    if (charts.has(title)) charts.get(title).take(figure);
    else charts.set(title, new Comparison(panelOf(figure.layout.meta, place), figure));
  }
  document.getElementById("compare-empty").hidden = figures.length > 0;
  order.take([...charts.keys()]);
  arrange();
}

function panelOf({ name, title }, place) {
  const grid = section.querySelector(".compare-grid");
  const rendered = grid.querySelector(`[data-chart="${CSS.escape(name)}"]`);
  if (rendered) return rendered;
  const panel = newPanel(name, title);
  grid.insertBefore(panel, grid.children[place] ?? null);
  return panel;
}

function newPanel(name, title) {
  const panel = document.getElementById("compare-chart").content.firstElementChild.cloneNode(true);
  panel.dataset.chart = name;
  panel.setAttribute("aria-labelledby", `${name}-title`);
  Object.assign(panel.querySelector("h2"), { id: `${name}-title`, textContent: title });
  panel.querySelector(".chart-canvas").setAttribute("aria-label", `${title}. The button Table shows the same data as a table.`);
  panel.querySelector(".chart-table").setAttribute("aria-label", `${title}: data`);
  panel.querySelector("caption").textContent = `${title}, newest first`;
  return panel;
}

function startGrid() {
  const slider = section.querySelector("[data-columns]");
  const grid = section.querySelector(".compare-grid");
  order.unchosen.className = "empty";
  grid.before(order.unchosen);
  const resize = (columns) => grid.style.setProperty("--columns", columns);
  const kept = localStorage.getItem(COLUMNS_KEY);
  if (kept) {
    slider.value = kept;
    resize(kept);
  }
  slider.addEventListener("input", () => {
    localStorage.setItem(COLUMNS_KEY, slider.value);
    resize(slider.value);
  });
}

// --- Grouping: the address says it, so that a link shows the same, and it is kept as the chosen charts are --------------

const grouping = section?.querySelector("[data-grouping]");

function readGroups() {
  const found = readJson("groupings-comparison").find(({ key }) => key === grouping.value);
  groups = found?.groups.map((group) => ({ ...group, key: `group-${group.number}` })) ?? null;
}

async function group() {
  readGroups();
  takenAway.clear();
  const parameters = new URLSearchParams(location.search);
  parameters.set("group", grouping.value);
  history.replaceState(history.state, "", `?${parameters}`);
  order.keepGroup(grouping.value);
  compared.setAttribute("hx-get", `${compared.getAttribute("hx-get").split("?")[0]}?${parameters}`);
  window.htmx.process(compared);
  const isShown = await renderAt(compared, compared.getAttribute("hx-get"), { swap: compared.getAttribute("hx-swap") });
  if (!isShown && parameters.get("group") === grouping.value) say(NOT_GROUPED, { kind: "error" });
}

// --- Fetching: at most once in a while, and not while the page is hidden -----------------------------------------

const askCurves = atMostEvery(SOON_MS, async () => {
  const { figures } = await fetchJson(`${compared.dataset.curves}${location.search}`);
  take(figures);
});
const askTables = refresher(compared, SOON_MS);

// --- Live --------------------------------------------------------------------------------------------------------

function secondsOf(job, at) {
  return (Date.parse(at) - Date.parse(job.started_at ?? job.submitted_at)) / 1000;
}

//: A training that starts, for the first time or anew, has other times and maybe other steps.
function followState(job, state) {
  const isOther = state.started_at !== job.started_at || state.attempt !== job.attempt;
  Object.assign(job, { started_at: state.started_at, attempt: state.attempt, state: state.state });
  const empty = document.getElementById("compare-empty");
  if (page.jobs.every((other) => isOver(other.state))) empty.textContent = empty.dataset.over;
  if (isOther) askCurves();
  askTables();
}

//: Metrics that no chart shows are asked for once: the page may have as many charts as it can draw.
const unknown = new Set();

function isKnown(job, point) {
  const chart = [...charts.values()].find(({ figure }) => figure.layout.meta.names.includes(point.name));
  if (chart) return chart.addPoint(job.job, { ...point, at: secondsOf(job, point.at) });
  const wasAsked = unknown.has(point.name);
  unknown.add(point.name);
  return wasAsked && charts.size > 1;
}

function knowsChange(job, at) {
  const last = charts.get("GPUs")?.lineOf(job.job)?.points.at(-1);
  return last !== undefined && last.at + ROUNDED >= secondsOf(job, at);
}

function followPoints(job, news) {
  const points = (news.metrics ?? []).map((point) => isKnown(job, point));
  const changes = (news.allocation ?? []).map(({ at }) => knowsChange(job, at));
  if (![...points, ...changes].every(Boolean)) askCurves();
  else if (points.length) charts.get("GPUs")?.request();
}

if (section) {
  startGrid();
  readGroups();
  grouping.addEventListener("change", group);
  if (grouping.value !== (grouping.querySelector("[selected]")?.value ?? "")) group(); // chosen before this script had come
  document.addEventListener("tidepool:theme", drawSoon);
  take(readJson("figures-comparison"));
  for (const job of page.jobs) {
    const { job: number, seq, ...state } = job;
    live.watch({
      name: jobTopic(number),
      seq,
      url: `/jobs/${number}/live.json`,
      state,
      onState: (now) => followState(job, now),
      onAppend: (news) => followPoints(job, news),
    });
  }
}
document.documentElement.dataset.ready = "yes";
