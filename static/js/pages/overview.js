// The overview: the pool's tide chart, the slot map, and the viewer's trainings, kept live.

import { readJson, TideChart } from "../charts.js";
import { jobMark, press, setField, showProgress, showState } from "../dom.js";
import { live } from "../live.js";
import { isOver } from "../words.js";

const ANOTHERS = "another user's training";
const HOLDING = new Set(["STARTING", "RUNNING", "PREEMPTING", "CANCELLING"]);

const page = readJson("live-cluster");
let labels = page.labels;
const watched = new Set();
const panel = document.querySelector('[data-chart="gpus"]');
const windows = [...panel.querySelectorAll("[data-window]")];

// What the viewer chose; without a choice the shortest window that shows everything since the first change.
function chosenWindow() {
  const kept = localStorage.getItem("tidepool-window");
  const minutes = windows.map((button) => button.dataset.window);
  if (minutes.includes(kept)) return kept;
  const [first] = page.append.allocation;
  const age = first ? (Date.now() - Date.parse(first.at)) / 60_000 : 0;
  return minutes.find((length) => Number(length) >= age) ?? minutes.at(-1);
}

const chart = new TideChart(panel, readJson("figure-gpus"), { windowMs: chosenWindow() * 60_000 });

press(windows, "window", chosenWindow());
chart.onChoice("window", (minutes) => {
  localStorage.setItem("tidepool-window", minutes);
  chart.windowMs = minutes * 60_000;
  chart.draw();
});

function showFigures(state) {
  const slots = Object.values(state.slots);
  const jobs = Object.values(state.jobs);
  const held = slots.filter((slot) => slot.job !== null);
  const told = held.map((slot) => slot.utilisation_percent).filter((value) => value !== null && value !== undefined);
  const figures = {
    used: held.length,
    capacity: slots.length,
    running: jobs.filter((job) => HOLDING.has(job.state)).length,
    waiting: jobs.filter((job) => job.state === "PENDING").length,
    utilisation: told.length ? `${Math.round(told.reduce((sum, value) => sum + value, 0) / told.length)} %` : "–",
  };
  for (const [name, value] of Object.entries(figures)) setField(document.getElementById("figures"), name, String(value));
}

//: A slot is a link only while its job is one that the viewer may open. Who has gone there by keyboard stays there.
function showAddress(tile, job) {
  if (job !== null && labels[job] !== undefined) {
    tile.href = `/jobs/${job}/`;
    tile.removeAttribute("tabindex");
    return;
  }
  if (tile === document.activeElement) tile.tabIndex = -1;
  tile.removeAttribute("href");
}

function showSlot(key, slot) {
  const tile = document.querySelector(`[data-slot="${CSS.escape(key)}"]`);
  if (!tile) return;
  showAddress(tile, slot.job);
  const holder = String(slot.job ?? "");
  if ((tile.dataset.job ?? "") !== holder || !tile.querySelector(".mark")) {
    if (holder) tile.dataset.job = holder;
    else delete tile.dataset.job;
    tile.querySelector(".mark").replaceWith(jobMark(slot.job));
    tile.classList.remove("changed");
    void tile.offsetWidth; // restarts the animation
    tile.classList.add("changed");
  }
  tile.toggleAttribute("data-vacating", Boolean(slot.vacating));
  tile.querySelector(".slot-label").textContent = slot.job === null ? "free" : (labels[slot.job] ?? ANOTHERS);
  tile.querySelector(".slot-note").textContent = slot.vacating ? "changing hands" : busy(slot.utilisation_percent);
}

function busy(value) {
  return value === null || value === undefined ? "" : `${Math.round(value)} % busy`;
}

function rowOf(job) {
  const body = document.querySelector("#active-jobs tbody");
  const known = body.querySelector(`tr[data-job="${job}"]`);
  if (known) return known;
  const row = document.getElementById("active-job-row").content.firstElementChild.cloneNode(true);
  row.dataset.job = job;
  row.dataset.href = `/jobs/${job}/`;
  row.querySelector('[data-field="mark"]').replaceChildren(jobMark(Number(job)));
  const link = row.querySelector('a[data-field="name"]');
  link.href = row.dataset.href;
  link.textContent = labels[job];
  body.append(row);
  return row;
}

function showJob(job, values) {
  if (labels[job] === undefined) return;
  if (isOver(values.state)) {
    document.querySelector(`#active-jobs tr[data-job="${job}"]`)?.remove();
    return;
  }
  const row = rowOf(job);
  showState(row, values.state);
  setField(row, "slots", String(values.slots));
  setField(row, "max_slots", String(values.max_slots));
  showProgress(row, values.progress);
  watchReason(job, row);
}

//: The sentence names jobs and priorities, so it comes by the job's own topic.
function watchReason(job, row) {
  if (watched.has(job)) return;
  watched.add(job);
  live.watch({
    name: `job.${job}`,
    seq: page.job_seqs[job] ?? 0,
    url: `/jobs/${job}/live.json`,
    onState: (state) => {
      if (state.reason) setField(row, "reason", state.reason.text);
      if (isOver(state.state)) live.unwatch(`job.${job}`);
    },
    onAppend: ({ allocation = [] }) => showAllocation({ allocation: allocation.map((point) => ({ ...point, job: Number(job) })) }),
  });
}

function showCluster(state, news) {
  for (const key of Object.keys(news.slots ?? {})) showSlot(key, state.slots[key]);
  for (const job of Object.keys(news.jobs ?? {})) showJob(job, state.jobs[job]);
  const rows = document.querySelectorAll("#active-jobs tbody tr");
  document.getElementById("active-jobs").classList.toggle("is-empty", rows.length === 0);
  showFigures(state);
  // A job that is new, or a host with new slots: its name or its place is not on this page yet.
  if (Object.keys(news.jobs ?? {}).some((job) => state.jobs[job].max_slots !== undefined && !seen.has(job))) topic.fetch().catch(() => {});
}

const seen = new Set(Object.keys(page.state.jobs));

function showAllocation({ allocation = [] }) {
  for (const point of allocation) {
    if (!chart.addStep(point.job, point)) chart.newBand(point, labels[point.job] ?? ANOTHERS);
  }
}

const topic = live.watch({
  name: "cluster",
  seq: page.seq,
  url: "/overview/live.json",
  state: page.state,
  onState: showCluster,
  onAppend: showAllocation,
  onSnapshot: (snapshot) => {
    labels = snapshot.labels;
    Object.assign(page.job_seqs, snapshot.job_seqs);
    for (const job of Object.keys(snapshot.state.jobs)) seen.add(job);
  },
});
for (const job of Object.keys(page.state.jobs)) showJob(job, page.state.jobs[job]);
