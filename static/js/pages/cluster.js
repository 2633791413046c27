// The cluster's page: every GPU now, and the trace of who had how many. Both are asked anew when something changes.

import { readJson, TideChart } from "../charts.js";
import { jobMark } from "../fields.js";
import { live } from "../live.js";
import { bytes, duration } from "../words.js";

const SOON_MS = 300;
const EVERY_MS = 5_000;
const TRACE_MS = 15_000;
const ANOTHERS = "another user's training";
const page = readJson("live-cluster");
const words = readJson("statuses");

// --- The grid ----------------------------------------------------------------------------------------------------

const grid = document.getElementById("gpu-grid");
let activeKey = null;

function element(tag, className, text = "") {
  const fresh = document.createElement(tag);
  if (className) fresh.className = className;
  fresh.textContent = text;
  return fresh;
}

function busy(slot) {
  const line = element("div", "gpu-busy");
  const value = slot.utilisation_percent;
  if (value === null) {
    line.textContent = slot.job === null ? "" : "does not tell how busy it is";
    return line;
  }
  const bar = document.createElement("progress");
  bar.max = 100;
  bar.value = value;
  bar.setAttribute("aria-hidden", "true");
  line.append(bar, `${Math.round(value)} % busy`);
  return line;
}

function more(slot) {
  if (slot.status === "idle") return `idle for ${duration(Date.now() - Date.parse(slot.idle_since))}`;
  if (slot.status !== "busy") return words[slot.status];
  if (slot.memory_used_bytes === null) return "";
  return slot.memory_total_bytes ? `${bytes(slot.memory_used_bytes)} of ${bytes(slot.memory_total_bytes)}` : bytes(slot.memory_used_bytes);
}

function fillCell(cell, slot) {
  const head = element("div", "gpu-head");
  head.append(jobMark(slot.job, { free: slot.job === null }), element("span", "gpu-name", slot.job === null ? words[slot.status] : slot.label));
  const last = element("div", "gpu-more", slot.job === null ? slot.model : [slot.owner, more(slot)].filter(Boolean).join(" · "));
  const box = document.createElement(slot.visible ? "a" : "div");
  if (slot.visible) {
    box.href = `/jobs/${slot.job}/`;
    box.tabIndex = -1;
  }
  box.append(head, busy(slot), last);
  box.title = [slot.label, slot.model, last.textContent].filter(Boolean).join(", ");
  const holder = String(slot.job ?? "");
  cell.classList.toggle("changed", cell.dataset.job !== undefined && cell.dataset.job !== holder);
  cell.dataset.job = holder;
  cell.dataset.status = slot.status;
  cell.dataset.slot = slot.key;
  cell.replaceChildren(box);
}

function rowOf(host) {
  const known = [...grid.tBodies[0].rows].find((row) => row.dataset.host === host.host);
  if (known) return known;
  const row = grid.tBodies[0].insertRow();
  row.setAttribute("role", "row");
  row.dataset.host = host.host;
  const head = element("th", "");
  head.scope = "row";
  head.setAttribute("role", "rowheader");
  row.append(head);
  return row;
}

function fillRow(host, width) {
  const row = rowOf(host);
  const said = [host.virtual ? "virtual GPUs (CPU)" : "", host.state === "ONLINE" ? "" : host.state.toLowerCase()].filter(Boolean).join(", ");
  row.cells[0].replaceChildren(host.host, element("small", "", said));
  while (row.cells.length <= width) row.insertCell().setAttribute("role", "gridcell");
  [...row.cells].slice(1).forEach((cell, index) => {
    const slot = host.slots[index];
    cell.classList.toggle("absent", !slot);
    if (slot) fillCell(cell, slot);
    else cell.replaceChildren();
  });
}

function showGrid(hosts) {
  if (!grid) {
    if (hosts.length) location.reload();
    return;
  }
  const width = grid.tHead.rows[0].cells.length - 1;
  if (hosts.some((host) => host.slots.length > width)) return location.reload();
  for (const host of hosts) fillRow(host, width);
  const names = new Set(hosts.map((host) => host.host));
  for (const row of [...grid.tBodies[0].rows]) if (!names.has(row.dataset.host)) row.remove();
  rove();
}

function cells() {
  return [...grid.querySelectorAll("td:not(.absent)")];
}

//: One Tab stop: the cell where one was last.
function rove() {
  const all = cells();
  const active = all.find((cell) => cell.dataset.slot === activeKey) ?? all[0];
  for (const cell of all) cell.tabIndex = cell === active ? 0 : -1;
}

function target(cell, key) {
  const row = cell.parentElement;
  const rows = [...grid.tBodies[0].rows];
  const own = [...row.cells].filter((other) => other.matches("td:not(.absent)"));
  const place = own.indexOf(cell);
  const inRow = (other) => other && ([...other.cells].filter((td) => td.matches("td:not(.absent)"))[place] ?? null);
  return {
    ArrowLeft: () => own[place - 1],
    ArrowRight: () => own[place + 1],
    ArrowUp: () => inRow(rows[rows.indexOf(row) - 1]),
    ArrowDown: () => inRow(rows[rows.indexOf(row) + 1]),
    Home: () => own[0],
    End: () => own.at(-1),
  }[key]?.();
}

grid?.addEventListener("keydown", (event) => {
  const cell = event.target.closest("td");
  if (!cell || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Enter") cell.querySelector("a")?.click();
  const next = target(cell, event.key);
  if (!next) return;
  event.preventDefault();
  next.focus();
});
grid?.addEventListener("focusin", (event) => {
  activeKey = event.target.closest("td")?.dataset.slot ?? activeKey;
  rove();
});

function showCounts(counts) {
  for (const [status, count] of Object.entries(counts)) {
    const number = document.querySelector(`#counts [data-status="${status}"] b`);
    if (number.textContent !== String(count)) number.textContent = String(count);
  }
}

function show(snapshot) {
  showGrid(snapshot.hosts);
  showCounts(snapshot.counts);
}

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
const windows = [...panel.querySelectorAll("[data-window]")];
const trace = new Trace(panel, readJson("figure-cluster-trace"), { windowMs: Number(windows[0].dataset.window) * 60_000 });
let asked = 0;

async function askTrace() {
  if (document.hidden) return;
  const number = ++asked;
  const minutes = trace.windowMs / 60_000;
  const response = await fetch(`/cluster/trace.json?minutes=${minutes}`, { headers: { Accept: "application/json" } });
  if (!response.ok) return;
  const figure = await response.json();
  if (number === asked) trace.take(figure);
}

function chooseWindow(button) {
  for (const other of windows) other.setAttribute("aria-pressed", String(other === button));
  trace.windowMs = Number(button.dataset.window) * 60_000;
  panel.setAttribute("aria-busy", "true");
  askTrace()
    .catch(() => {})
    .finally(() => panel.removeAttribute("aria-busy"));
}

windows[0].setAttribute("aria-pressed", "true");
for (const button of windows) button.addEventListener("click", () => chooseWindow(button));

// --- Live --------------------------------------------------------------------------------------------------------

const timers = new Map();

//: At most once in a while, however many events come.
function soon(what, milliseconds) {
  if (timers.has(what)) return;
  timers.set(
    what,
    setTimeout(() => {
      timers.delete(what);
      what().catch(() => {});
    }, milliseconds),
  );
}

async function askGrid() {
  if (document.hidden) return;
  const response = await fetch("/cluster/live.json", { headers: { Accept: "application/json" } });
  if (response.ok) show(await response.json());
}

live.watch({
  name: "cluster",
  seq: page.seq,
  url: "/cluster/live.json",
  onState: (_, news) => {
    if (news.slots || news.hosts) soon(askGrid, SOON_MS);
    if (news.hosts) soon(askTrace, SOON_MS);
  },
  onAppend: ({ allocation = [] }) => {
    for (const point of allocation) if (!trace.means() && trace.addStep(point.job, point)) continue;
    if (allocation.length) soon(askTrace, SOON_MS);
  },
  onSnapshot: show,
});
show(page);
setInterval(() => askGrid().catch(() => {}), EVERY_MS);
setInterval(() => askTrace().catch(() => {}), TRACE_MS);
