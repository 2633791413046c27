// The Usage page: draws the charts, and fetches new ones while the window ends now.

import { Figure, localTime, readJson } from "../figure.js";
import { atMostEvery, CLUSTER_TOPIC, fetchJson, isUrgent, live } from "../live.js";
import { exactTime } from "../words.js";

const SHORTEST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 60_000;
//: Fraction of the window after which a moving window is fetched again: long windows change slowly.
const MOVED_PART = 1 / 1_000;
const CSV = "/api/v1/usage/";
const STEP_WORDS = { 60: "a minute", 300: "5 minutes", 900: "15 minutes", 3600: "an hour", 21600: "6 hours", 86400: "a day" };

const form = document.getElementById("usage-window");

//: Parameters of the address, completed by the range that the server chose.
function currentQuery() {
  const query = new URLSearchParams(location.search);
  if (!query.get("from") && !query.get("to") && !query.get("range")) query.set("range", form.dataset.range);
  return query;
}

class UsageChart extends Figure {
  constructor(panel, figure) {
    super(panel, figure);
    this.draw();
  }

  take(figure) {
    this.figure = figure;
    this.draw();
  }

  bands() {
    return this.figure.data.filter((trace) => trace.meta.kind === "band");
  }

  hasData() {
    return this.bands().some((trace) => trace.y.some((height) => height > 0));
  }

  prepare(layout) {
    const { start, end } = this.figure.shown;
    layout.xaxis.range = [start, end].map((at) => localTime(Date.parse(at)));
    const heights = this.figure.data.find((trace) => trace.meta.kind === "capacity").y;
    const held = this.bands().reduce((sums, { y }) => y.map((height, index) => height + (sums[index] ?? 0)), []);
    layout.yaxis.range = [0, Math.max(1, ...heights, ...held) * 1.1];
  }

  traces() {
    return this.figure.data.map((trace) => ({ ...trace, x: trace.x.map((at) => localTime(Date.parse(at))) }));
  }

  columns() {
    return ["From", ...this.figure.data.map((trace) => trace.meta.label ?? "GPUs in the pool")];
  }

  rows() {
    const steps = this.figure.data[0]?.x.slice(0, -1) ?? [];
    return steps.map((at, index) => [
      exactTime(new Date(at)),
      ...this.figure.data.map((trace) => (trace.y[index] === null ? "" : Number(trace.y[index].toFixed(2)))),
    ]);
  }

  drawn() {
    const seconds = this.figure.shown.step_seconds;
    this.panel.querySelector(".chart-note").textContent = seconds ? `Each step is the mean of ${STEP_WORDS[seconds]}.` : "Each change is shown.";
  }

  saveCsv() {
    const query = currentQuery();
    query.set("format", "csv");
    query.set("part", "timeline");
    location.assign(`${CSV}?${query}`);
  }
}

const charts = new Map();
for (const [name, figure] of Object.entries(readJson("usage-charts"))) {
  charts.set(name, new UsageChart(document.querySelector(`[data-chart="usage-${name}"]`), figure));
}

// --- The window ----------------------------------------------------------------------------------------------------

//: Times are shown and typed in the viewer's zone, and sent in UTC.
const fields = [form.elements.from, form.elements.to];
for (const field of fields) field.value = localTime(Date.parse(`${field.value}Z`)).slice(0, 16);
document.getElementById("window-zone").textContent = "your time";
form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (!form.reportValidity()) return;
  const query = new URLSearchParams({ by: form.elements.by.value });
  for (const field of fields) query.set(field.name, new Date(field.value).toISOString());
  location.assign(`?${query}`);
});

// --- Live ----------------------------------------------------------------------------------------------------------

const { start, end, moves } = charts.get("allocation").figure.shown;
const pause = Math.min(LONGEST_PAUSE_MS, Math.max(SHORTEST_PAUSE_MS, (Date.parse(end) - Date.parse(start)) * MOVED_PART));
const read = () => fetchJson(`/usage/report.json?${currentQuery()}`);

function show(report) {
  for (const [name, figure] of Object.entries(report.charts)) charts.get(name).take(figure);
  for (const part of document.querySelectorAll("[data-part]")) {
    if (!part.contains(document.activeElement)) part.innerHTML = report[part.dataset.part]; // rendered by the server, escaped
  }
}

if (moves) {
  const readSoon = atMostEvery(SHORTEST_PAUSE_MS, async () => show(await read()));
  live.watch({
    name: CLUSTER_TOPIC,
    seq: readJson("live-usage").seq,
    read,
    onState: (_, changes) => changes.slots && isUrgent(changes) && readSoon(),
    onSnapshot: show,
  });
  setInterval(readSoon, pause);
}
