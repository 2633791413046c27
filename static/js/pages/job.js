// One job's page. Each part of it is a module in job/ with `start(page, root)`, which answers with what it wants to
// hear: showState(state, news), append(news), showSnapshot(snapshot). This module listens and hands on.

import { TideChart } from "../charts.js";
import { MetricsChart, sizesOf } from "../curves.js";
import { readJson } from "../figure.js";
import { refreshTimes } from "../frame.js";
import { CALM_MS, renewer } from "../fresh.js";
import { startGpuUse } from "../gpu_use.js";
import { CLUSTER_TOPIC, isUrgent, jobTopic, live } from "../live.js";
import { watchPreview } from "../preview.js";
import { clock, isOver } from "../words.js";
import { start as startEvents } from "./job/events.js";
import { start as startHeader } from "./job/header.js";
import { start as startLogs } from "./job/logs.js";
import { start as startSpeed } from "./job/speed.js";
import { start as startWhy } from "./job/why.js";

const RANKS_SETTLE_MS = 500;

const root = document.getElementById("job");
const page = readJson("live-job");
page.job = Number(root.dataset.job);
const parts = [startHeader, startWhy, startCharts, startLogs, startEvents, startSpeed, startParts].map((start) => start(page, root));

// --- The curves: GPUs over time, loss and accuracy ---

function startCharts(page) {
  let finishedAt = page.state.finished_at;
  let attempt = page.state.attempt;
  const tide = new TideChart(root.querySelector('[data-chart="gpus"]'), readJson("figure-gpus"), {
    endOf: () => (finishedAt ? Date.parse(finishedAt) + 1_000 : Date.now()),
  });
  const gpus = () => tide.band(page.job);
  const metrics = new MetricsChart(root.querySelector('[data-chart="metrics"]'), readJson("figure-metrics"), gpus);
  const word = sizeWord(gpus);

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
      if (news.allocation?.length) {
        word.say();
        metrics.request();
      }
      metrics.addPoints(news.metrics ?? []);
    },
    //: A new attempt may make steps again: the server knows what counts.
    showSnapshot(snapshot) {
      if (snapshot.state.attempt !== attempt) metrics.refetch();
      attempt = snapshot.state.attempt;
    },
  };
}

//: Parts that the server renders say by `data-on` which values of the job they show.
function startParts(page, root) {
  const renewals = [...root.querySelectorAll("[data-on]")].map((part) => [part.dataset.on.split(" "), renewer(part, Number(part.dataset.calm ?? CALM_MS))]);
  const renew = (news) => {
    for (const [names, soon] of renewals) if (names.some((name) => name in news)) soon(isUrgent(news));
  };
  followSlots(page, root);
  return {
    showState: (_, news) => news !== page.state && renew(news),
    append: (news) => news !== page.append && renew(news),
  };
}

//: News about the job's GPUs comes with the cluster's topic, as on every page.
function followSlots(page, root) {
  const part = root.querySelector("#slots");
  const renew = renewer(part);
  const renewPlace = renewer(root.querySelector("#place"));
  const isMine = ([key, { job }]) => job === page.job || part.querySelector(`[data-slot="${CSS.escape(key)}"]`);
  live.watch({
    name: CLUSTER_TOPIC,
    seq: page.cluster_seq,
    onState: (_, { slots = {}, jobs = {} }) => {
      if (Object.entries(slots).some(isMine)) renew(isUrgent({ slots }));
      // The queue position changes with every other training.
      if (root.dataset.state === "PENDING" && isUrgent({ jobs })) renewPlace(false);
    },
    onSnapshot: () => renew(true),
  });
}

//: Whether it ever had another number of GPUs, in a word that opens the chart of them.
function sizeWord(gpus) {
  const word = document.getElementById("gpus-word");
  const chart = document.getElementById("gpus-over-time");
  const toggle = () => {
    chart.hidden = !chart.hidden;
    word.setAttribute("aria-expanded", String(!chart.hidden));
  };
  const say = () => {
    const sizes = sizesOf(gpus().steps);
    word.hidden = sizes.length === 0;
    word.textContent = sizes.length > 1 ? `${sizes.length - 1} ${sizes.length === 2 ? "change" : "changes"}` : "no changes";
  };
  word.addEventListener("click", toggle);
  document.addEventListener("tidepool:gpus", toggle);
  say();
  return { say };
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

//: Ranks change with the generation; the page fetches their rows.
function followChange(state, news) {
  if (news === state || (news.generation === undefined && news.attempt === undefined && news.state === undefined)) return;
  clearTimeout(followChange.timer);
  followChange.timer = setTimeout(() => topic.fetch().catch(() => {}), RANKS_SETTLE_MS);
}

const topic = live.watch({
  name: jobTopic(page.job),
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

//: Shows the tab that the address names.
function scrollToTab() {
  const isOpened = [...root.querySelectorAll(".job-tabs [role=tab]")].some(
    (tab, place) => place > 0 && `#${tab.getAttribute("aria-controls")}` === location.hash,
  );
  if (isOpened) root.querySelector(".job-tabs").scrollIntoView({ block: "start" });
}

startGpuUse(root.querySelector('[data-chart="gpu-use"]'), () => `/jobs/${page.job}/gpus.json`);

// --- The change of its priority and limits: says what it would do before it is saved ---

//: `form`: absent for viewers, who change nothing.
function startChange(form) {
  if (!form) return;
  const panel = form.querySelector("[data-when-changed]");
  const before = new FormData(form);
  watchPreview(form, panel);
  form.addEventListener("input", () => {
    panel.hidden = ["priority", "max_slots", "max_seconds"].every((name) => form.elements.namedItem(name).value === before.get(name));
  });
}

startChange(root.querySelector("form.change-form"));

tell("showState", page.state, page.state);
tell("append", page.append);
refreshTimes(root);
scrollToTab();
document.documentElement.dataset.ready = clock(new Date());
