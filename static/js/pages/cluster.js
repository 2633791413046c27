// The cluster's page: every GPU now, and the trace of who had how many. Both are asked anew when something changes.

import { readJson, TideChart } from "../charts.js";
import { refresher } from "../fresh.js";
import { atMostEvery, fetchJson, live } from "../live.js";
import { duration } from "../words.js";

const SOON_MS = 300;
const TRACE_MS = 15_000;
const ANOTHERS = "another user's training";

// --- The grid: the server renders it, arrow keys walk in it ---------------------------------------------------------

const now = document.getElementById("now");
const holders = new Map();
let activeKey = null;

function cells() {
  return [...now.querySelectorAll("td[data-slot]")];
}

//: One Tab stop: the cell where one was last.
function rove() {
  const all = cells();
  const active = all.find((cell) => cell.dataset.slot === activeKey) ?? all[0];
  for (const cell of all) cell.tabIndex = cell === active ? 0 : -1;
}

function follow() {
  for (const cell of cells()) {
    const { slot, job } = cell.dataset;
    cell.classList.toggle("changed", holders.has(slot) && holders.get(slot) !== job);
    holders.set(slot, job);
  }
  rove();
}

function target(cell, key) {
  const rows = [...cell.closest("tbody").rows].map((row) => [...row.querySelectorAll("td[data-slot]")]);
  const row = rows.findIndex((others) => others.includes(cell));
  const place = rows[row].indexOf(cell);
  return {
    ArrowLeft: rows[row][place - 1],
    ArrowRight: rows[row][place + 1],
    ArrowUp: rows[row - 1]?.[place],
    ArrowDown: rows[row + 1]?.[place],
    Home: rows[row][0],
    End: rows[row].at(-1),
  }[key];
}

now.addEventListener("keydown", (event) => {
  const cell = event.target.closest("td");
  if (!cell || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Enter") cell.querySelector("a").click();
  const next = target(cell, event.key);
  if (!next) return;
  event.preventDefault();
  next.focus();
});
now.addEventListener("focusin", (event) => {
  activeKey = event.target.closest("td")?.dataset.slot ?? activeKey;
  rove();
});
now.addEventListener("htmx:afterSwap", follow);
follow();

// --- The trace ---------------------------------------------------------------------------------------------------

//: The server makes few points of however many changes; steps that come live are added until it is asked again.
class Trace extends TideChart {
  take(figure) {
    this.figure = figure;
    this.takeCapacity(figure);
    this.bands.clear();
    for (const trace of figure.data.filter((one) => one.meta.kind === "band")) this.addBand(trace);
    this.draw();
  }

  means() {
    return this.figure.layout.meta.mean_seconds;
  }

  mark(changes, band, grid, total, start) {
    if (!this.means()) super.mark(changes, band, grid, total, start);
  }

  rows() {
    if (!this.means()) return super.rows();
    return this.figure.layout.meta.changes.map(([at, , label, slots, text, pause]) => [
      new Date(at).toLocaleString(),
      label ?? ANOTHERS,
      slots,
      text,
      pause === null ? "" : Math.round(pause),
    ]);
  }

  hasData() {
    return this.bands.size > 0;
  }

  drawn() {
    super.drawn();
    const { count, changes } = this.figure.layout.meta;
    const note = this.means()
      ? `${count} changes: each point is the mean of ${duration(this.means() * 1000)}. The table has the newest ${changes.length}, the CSV all.`
      : "";
    this.panel.querySelector(".chart-note").textContent = note;
  }

  saveCsv() {
    location.assign(`/api/v1/cluster/trace.csv?minutes=${this.windowMs / 60_000}`);
  }
}

const panel = document.querySelector('[data-chart="cluster-trace"]');
const [first] = panel.querySelectorAll("[data-window]");
const trace = new Trace(panel, readJson("figure-cluster-trace"), { windowMs: Number(first.dataset.window) * 60_000 });
let asked = 0;

async function askTrace() {
  const number = ++asked;
  const figure = await fetchJson(`/cluster/trace.json?minutes=${trace.windowMs / 60_000}`);
  if (number === asked) trace.take(figure);
}

first.setAttribute("aria-pressed", "true");
trace.onChoice("window", (minutes) => {
  trace.windowMs = Number(minutes) * 60_000;
  panel.setAttribute("aria-busy", "true");
  askTrace()
    .catch(() => {})
    .finally(() => panel.removeAttribute("aria-busy"));
});

// --- Live --------------------------------------------------------------------------------------------------------

const refreshSoon = refresher(now, SOON_MS);
const askTraceSoon = atMostEvery(SOON_MS, askTrace);

live.watch({
  name: "cluster",
  seq: readJson("live-cluster"),
  onState: (_, news) => {
    if (news.slots || news.hosts) refreshSoon();
    if (news.hosts) askTraceSoon();
  },
  onAppend: ({ allocation = [] }) => {
    if (!trace.means()) for (const point of allocation) trace.addStep(point.job, point);
    if (allocation.length) askTraceSoon();
  },
  onSnapshot: refreshSoon,
});
setInterval(askTraceSoon, TRACE_MS);
