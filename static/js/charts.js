// Draws the figures that the server made (`webapp/lib/charts.py`) and keeps them moving.

import { clock, pauseInWords } from "./words.js";

const REDRAW_MS = 1_000;
const MAX_POINTS = 600;
const MAX_BANDS = 7;
const CONFIG = { displayModeBar: false, responsive: true, scrollZoom: false, doubleClick: false };

export function readJson(id) {
  return JSON.parse(document.getElementById(id).textContent);
}

//: Plotly reads a little markup in texts; what people named must stay text.
function asText(value) {
  return String(value).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

//: Plotly shows times as they are written: write them in the viewer's time zone.
function localTime(milliseconds) {
  const moment = new Date(milliseconds);
  return new Date(milliseconds - moment.getTimezoneOffset() * 60_000).toISOString().slice(0, 23);
}

//: Puts a figure on the page; redraws at most once a second and not while nobody looks.
class Figure {
  constructor(panel, figure) {
    this.panel = panel;
    this.canvas = panel.querySelector(".chart-canvas");
    this.empty = panel.querySelector(".chart-empty");
    this.table = panel.querySelector(".chart-table");
    this.figure = figure;
    this.drawnAt = 0;
    this.timer = null;
    panel.querySelector("[data-chart-table]")?.addEventListener("click", (event) => this.toggleTable(event.currentTarget));
    panel.querySelector("[data-chart-csv]")?.addEventListener("click", () => this.saveCsv());
    document.addEventListener("visibilitychange", () => document.hidden || this.request());
    document.addEventListener("tidepool:theme", () => this.draw());
  }

  request() {
    if (this.timer !== null || document.hidden) return;
    const wait = Math.max(0, this.drawnAt + REDRAW_MS - performance.now());
    this.timer = setTimeout(() => {
      this.timer = null;
      this.draw();
    }, wait);
  }

  draw() {
    this.drawnAt = performance.now();
    const rows = this.rows();
    const isEmpty = rows.length === 0;
    this.empty.hidden = !isEmpty;
    this.canvas.classList.toggle("invisible", isEmpty);
    if (this.table && !this.table.hidden) this.fillTable(rows);
    if (isEmpty) return;
    const layout = structuredClone(this.figure.layout);
    this.prepare(layout);
    colourAxes(layout);
    window.Plotly.react(this.canvas, this.traces(), layout, CONFIG);
  }

  prepare() {}

  toggleTable(button) {
    this.table.hidden = !this.table.hidden;
    button.setAttribute("aria-pressed", String(!this.table.hidden));
    this.canvas.hidden = !this.table.hidden;
    if (this.table.hidden) this.draw();
    else this.fillTable(this.rows());
  }

  fillTable(rows) {
    const body = this.table.querySelector("tbody");
    body.replaceChildren(...rows.slice(-MAX_POINTS).reverse().map((row) => {
      const line = document.createElement("tr");
      for (const value of row) line.insertCell().textContent = value ?? "";
      return line;
    }));
  }

  saveCsv() {
    const head = [...this.table.querySelectorAll("th")].map((cell) => cell.textContent);
    const lines = [head, ...this.rows()].map((row) => row.map(csvCell).join(","));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([lines.join("\r\n")], { type: "text/csv" }));
    link.download = `${this.panel.dataset.chart}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  }
}

//: A leading sign of a formula is defused: spreadsheets run formulas that come in text.
function csvCell(value) {
  const text = String(value ?? "");
  const safe = typeof value === "string" && /^[=+\-@]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function colourAxes(layout) {
  const style = getComputedStyle(document.documentElement);
  layout.font.color = style.getPropertyValue("--chart-ink").trim();
  layout.font.family = getComputedStyle(document.body).fontFamily;
  layout.hoverlabel = {
    align: "left",
    bgcolor: style.getPropertyValue("--chart-hover").trim(),
    bordercolor: style.getPropertyValue("--chart-grid").trim(),
    font: { color: layout.font.color, size: 12 },
  };
  for (const name of ["xaxis", "xaxis2", "yaxis", "yaxis2"]) {
    if (!layout[name]) continue;
    Object.assign(layout[name], {
      gridcolor: style.getPropertyValue("--chart-grid").trim(),
      linecolor: style.getPropertyValue("--chart-grid").trim(),
      fixedrange: true,
      automargin: true,
    });
  }
}

//: GPUs over time: one band per job, stacked, with a marker and the reason at each change.
export class TideChart extends Figure {
  constructor(panel, figure, { windowMs = null, endOf = () => Date.now() } = {}) {
    super(panel, figure);
    this.windowMs = windowMs;
    this.endOf = endOf;
    this.pool = figure.layout.meta.pool;
    this.capacity = figure.layout.meta.capacity;
    this.bands = new Map();
    for (const trace of figure.data.filter((trace) => trace.meta.kind === "band")) this.addBand(trace);
    // What moves at the right edge is time: no event says so.
    setInterval(() => this.isMoving() && this.request(), REDRAW_MS);
    this.draw();
  }

  addBand(trace) {
    const steps = trace.x.map((at, index) => ({ at: Date.parse(at), slots: trace.y[index], text: trace.customdata[index][0], pause: trace.customdata[index][1] }));
    this.bands.set(trace.meta.job, { trace, steps });
  }

  //: A step as live events and the allocation endpoint give it; known ones change nothing.
  addStep(job, point) {
    const band = this.bands.get(job);
    if (!band) return false;
    const step = { at: Date.parse(point.at), slots: point.slots, text: point.reason?.text ?? "", pause: point.pause_ms };
    const known = band.steps.find((other) => other.at === step.at && other.slots === step.slots);
    if (!known) {
      band.steps.push(step);
      band.steps.sort((one, other) => one.at - other.at);
    } else if (step.text && !known.text) {
      // The cluster's topic, which everybody hears, does not say why; the job's own topic does.
      known.text = step.text;
    } else {
      return true;
    }
    this.request();
    return true;
  }

  //: A job that the server did not know yet when it made the figure.
  newBand(point, label) {
    const colours = this.figure.layout.meta.colours;
    const colour = colours[point.job % colours.length];
    const letter = String.fromCharCode(65 + ((point.job - 1) % 26));
    this.addBand({
      ...this.figure.layout.meta.band,
      name: asText(`${letter} · ${label}`),
      meta: { kind: "band", job: point.job, label },
      line: { ...this.figure.layout.meta.band.line, color: colour },
      fillcolor: colour,
    });
    this.addStep(point.job, point);
  }

  isMoving() {
    return [...this.bands.values()].some(({ steps }) => steps.length > 0 && steps.at(-1).slots > 0);
  }

  range() {
    const end = this.endOf();
    if (this.windowMs) return [end - this.windowMs, end];
    const starts = [...this.bands.values()].flatMap(({ steps }) => steps.map((step) => step.at));
    const start = Math.min(...starts, end - 10_000);
    return [start - (end - start) * 0.02, end];
  }

  visible([start, end]) {
    const held = [...this.bands.values()].map((band) => ({ ...band, area: area(band.steps, start, end) }));
    return held.filter((band) => band.area > 0);
  }

  rows() {
    const [start, end] = this.range();
    return this.visible([start, end]).flatMap(({ trace, steps }) => steps.filter((step) => step.at >= start).map((step) => ({ trace, step })))
      .sort((one, other) => one.step.at - other.step.at)
      .map(({ trace, step }) => [new Date(step.at).toLocaleString(), trace.meta.label, step.slots, step.text, step.pause === null || step.pause === undefined ? "" : Math.round(step.pause)]);
  }

  prepare(layout) {
    const [start, end] = this.range();
    layout.xaxis.range = [localTime(start), localTime(end)];
    // A job may have had more than it may have now.
    const highest = this.pool ? 0 : Math.max(0, ...[...this.bands.values()].flatMap(({ steps }) => steps.map((step) => step.slots)));
    layout.yaxis.range = [0, Math.max(1, this.capacity, highest) * 1.1];
  }

  traces() {
    const [start, end] = this.range();
    const bands = foldSmall(this.visible([start, end]));
    const grid = times(bands, start, end);
    const total = grid.map(() => 0);
    const drawn = [];
    const changes = { x: [], y: [], text: [], colours: [] };
    for (const band of bands) {
      const heights = grid.map((at) => heightAt(band.steps, at));
      heights.forEach((height, index) => (total[index] += height));
      drawn.push({ ...band.trace, x: grid.map(localTime), y: heights, customdata: undefined });
      this.mark(changes, band, grid, total, start);
    }
    for (const trace of this.figure.data) {
      if (trace.meta.kind === "free") drawn.push({ ...trace, x: grid.map(localTime), y: total.map((used) => Math.max(0, this.capacity - used)) });
      if (trace.meta.kind === "capacity") drawn.push({ ...trace, name: trace.name.replace(/\d+$/, this.capacity), x: [localTime(start), localTime(end)], y: [this.capacity, this.capacity] });
      if (trace.meta.kind === "changes") drawn.push({ ...trace, x: changes.x, y: changes.y, text: changes.text, marker: { ...trace.marker, color: changes.colours } });
    }
    return drawn;
  }

  mark(changes, band, grid, total, start) {
    for (const step of band.steps) {
      if (step.at < start || band.folded) continue;
      const index = grid.indexOf(step.at);
      if (index < 0) continue;
      changes.x.push(localTime(step.at));
      changes.y.push(total[index]);
      changes.colours.push(band.trace.fillcolor);
      changes.text.push(hoverText(band.trace.meta.label, step));
    }
  }
}

function hoverText(label, step) {
  const lines = [`<b>${asText(label)}: ${step.slots} ${step.slots === 1 ? "GPU" : "GPUs"}</b> at ${clock(new Date(step.at))}`];
  if (step.text) lines.push(...wrapped(asText(step.text)));
  if (step.pause !== null && step.pause !== undefined) lines.push(pauseInWords(step.pause));
  return lines.join("<br>");
}

function wrapped(text, width = 60) {
  const lines = [""];
  for (const word of text.split(" ")) {
    if (lines.at(-1).length + word.length > width) lines.push("");
    lines[lines.length - 1] += (lines.at(-1) ? " " : "") + word;
  }
  return lines;
}

function heightAt(steps, at) {
  let height = 0;
  for (const step of steps) {
    if (step.at > at) break;
    height = step.slots;
  }
  return height;
}

function area(steps, start, end) {
  let sum = 0;
  steps.forEach((step, index) => {
    const from = Math.max(step.at, start);
    const until = Math.min(steps[index + 1]?.at ?? end, end);
    if (until > from) sum += (until - from) * step.slots;
  });
  return sum;
}

//: Few bands can be told apart: the smallest become one grey band.
function foldSmall(bands) {
  if (bands.length <= MAX_BANDS) return bands;
  const order = [...bands].sort((one, other) => other.area - one.area);
  const small = new Set(order.slice(MAX_BANDS - 1));
  const moments = [...new Set([...small].flatMap((band) => band.steps.map((step) => step.at)))].sort((one, other) => one - other);
  const steps = moments.map((at) => ({ at, slots: [...small].reduce((sum, band) => sum + heightAt(band.steps, at), 0) }));
  const [sample] = small;
  const trace = { ...sample.trace, name: `${small.size} smaller trainings`, fillcolor: "#868e96", line: { ...sample.trace.line, color: "#868e96" } };
  return [...bands.filter((band) => !small.has(band)), { trace, steps, folded: true }];
}

function times(bands, start, end) {
  const moments = new Set([start, end]);
  for (const { steps } of bands) for (const { at } of steps) if (at > start && at < end) moments.add(at);
  const sorted = [...moments].sort((one, other) => one - other);
  return sorted.length <= MAX_POINTS ? sorted : [start, ...sorted.slice(-MAX_POINTS + 1)];
}

//: Loss and accuracy by step.
export class MetricsChart extends Figure {
  constructor(panel, figure) {
    super(panel, figure);
    this.note = panel.querySelector(".chart-note");
    this.every = figure.layout.meta.every;
    this.lines = new Map(figure.data.map((trace) => [trace.meta.metric, { trace, points: trace.x.map((step, index) => [step, trace.y[index]]) }]));
    this.draw();
  }

  addPoints(points) {
    let isNew = false;
    for (const { name, step, value } of points) {
      const line = this.lines.get(name);
      const last = line?.points.at(-1)?.[0] ?? -1;
      if (!line || step <= last) continue;
      line.points.push([step, value]);
      isNew = true;
    }
    if (!isNew) return;
    for (const line of this.lines.values()) {
      if (line.points.length <= 2 * MAX_POINTS) continue;
      line.points = line.points.filter((_, index) => index % 2 === 0 || index === line.points.length - 1);
      this.every *= 2;
    }
    this.request();
  }

  replacePoints(points) {
    for (const line of this.lines.values()) line.points = [];
    this.addPoints(points);
  }

  rows() {
    const steps = new Map();
    const names = [...this.lines.keys()];
    for (const [column, line] of [...this.lines.values()].entries()) {
      for (const [step, value] of line.points) {
        if (!steps.has(step)) steps.set(step, names.map(() => ""));
        steps.get(step)[column] = value === null ? "not a number" : Number(value.toPrecision(5));
      }
    }
    return [...steps].sort(([one], [other]) => one - other).map(([step, values]) => [step, ...values]);
  }

  draw() {
    super.draw();
    if (this.note) this.note.textContent = this.stride() > 1 ? `Shown: one step in ${this.stride()}.` : "";
  }

  stride() {
    const longest = Math.max(0, ...[...this.lines.values()].map((line) => line.points.length));
    return this.every * Math.max(1, Math.ceil(longest / MAX_POINTS));
  }

  traces() {
    const accent = getComputedStyle(document.documentElement);
    return [...this.lines.values()].map(({ trace, points }) => {
      const every = Math.max(1, Math.ceil(points.length / MAX_POINTS));
      const shown = points.filter((_, index) => index % every === 0 || index === points.length - 1);
      const isTest = trace.meta.metric.startsWith("test_");
      const colour = accent.getPropertyValue(isTest ? "--chart-second" : "--chart-first").trim();
      return { ...trace, x: shown.map(([step]) => step), y: shown.map(([, value]) => value), showlegend: shown.length > 0, line: { ...trace.line, color: colour } };
    });
  }
}
