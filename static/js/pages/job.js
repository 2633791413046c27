// One job's page. Each part of it is a module in job/ with `start(page, root)`, which answers with what it wants to
// hear: showState(state, news), append(news), showSnapshot(snapshot). This module listens and hands on.

import { MetricsChart, readJson, TideChart } from "../charts.js";
import { refreshTimes } from "../frame.js";
import "../fresh.js";
import { live } from "../live.js";
import { watchPreview } from "../preview.js";
import { clock, isOver } from "../words.js";
import { start as startEvents } from "./job/events.js";
import { start as startHeader } from "./job/header.js";
import { start as startLogs } from "./job/logs.js";
import { start as startWhy } from "./job/why.js";

const RANKS_SETTLE_MS = 500;

const root = document.getElementById("job");
const page = readJson("live-job");
page.job = Number(root.dataset.job);
const parts = [startHeader, startWhy, startCharts, startLogs, startEvents].map((start) => start(page, root));

// --- The curves: GPUs over time, loss and accuracy ---

function startCharts(page) {
  let finishedAt = page.state.finished_at;
  let attempt = page.state.attempt;
  const tide = new TideChart(root.querySelector('[data-chart="gpus"]'), readJson("figure-gpus"), {
    endOf: () => (finishedAt ? Date.parse(finishedAt) + 1_000 : Date.now()),
  });
  const metrics = new MetricsChart(root.querySelector('[data-chart="metrics"]'), readJson("figure-metrics"));

  return {
    showState(state) {
      finishedAt = state.finished_at;
      tide.capacity = state.max_slots;
      tide.request();
      if (isOver(state.state)) showOver();
    },
    append(news) {
      if (news === page.append) return; // the figures were made with these
      for (const point of news.allocation ?? []) tide.addStep(page.job, point);
      metrics.addPoints(news.metrics ?? []);
    },
    //: A new attempt may make steps again: the server knows what counts.
    showSnapshot(snapshot) {
      if (snapshot.state.attempt !== attempt) metrics.refetch();
      attempt = snapshot.state.attempt;
    },
  };
}

//: A chart that stays empty says so, and takes little room.
function showOver() {
  for (const empty of root.querySelectorAll(".chart-empty[data-over]")) {
    empty.textContent = empty.dataset.over;
    empty.classList.add("is-over");
  }
}

// --- Live ---

function tell(what, ...news) {
  for (const part of parts) part?.[what]?.(...news);
}

//: Who trains changes with the generation; their rows come by fetching.
function followChange(state, news) {
  if (news === state || (news.generation === undefined && news.attempt === undefined && news.state === undefined)) return;
  clearTimeout(followChange.timer);
  followChange.timer = setTimeout(() => topic.fetch().catch(() => {}), RANKS_SETTLE_MS);
}

const topic = live.watch({
  name: `job.${page.job}`,
  seq: page.seq,
  url: root.dataset.live,
  state: page.state,
  onState: (state, news) => {
    root.dataset.state = state.state;
    tell("showState", state, news);
    followChange(state, news);
  },
  onAppend: (news) => tell("append", news),
  onSnapshot: (snapshot) => tell("showSnapshot", snapshot),
});

//: Who opens a shared address of a tab wants to see that tab.
function scrollToTab() {
  const isOpened = [...root.querySelectorAll(".job-tabs [data-bs-target]")].some((tab, place) => place > 0 && tab.dataset.bsTarget === location.hash);
  if (isOpened) root.querySelector(".job-tabs").scrollIntoView({ block: "start" });
}

//: Curves of a training that is over stay as they are, and so does what is said of them.
document.getElementById("advice").addEventListener("htmx:beforeRequest", (event) => {
  if (root.dataset.state !== "RUNNING") event.preventDefault();
});

// --- The change of its priority and GPUs: says what it would do before it is saved ---

const form = root.querySelector("form.change-form");
const panel = form.querySelector("[data-when-changed]");
const before = new FormData(form);
watchPreview(form, panel);
form.addEventListener("input", () => {
  panel.hidden = ["priority", "max_slots"].every((name) => form.elements.namedItem(name).value === before.get(name));
});

tell("showState", page.state, page.state);
tell("append", page.append);
refreshTimes(root);
scrollToTab();
document.documentElement.dataset.ready = clock(new Date());
