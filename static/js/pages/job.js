// One job's page. Each part of it is a module in job/ with `start(page, root)`, which answers with what it wants to
// hear: showState(state, news), append(news), showSnapshot(snapshot). This module listens and hands on.

import { readJson } from "../charts.js";
import { refreshTimes } from "../frame.js";
import "../fresh.js";
import { live } from "../live.js";
import { clock } from "../words.js";
import { start as startCharts } from "./job/charts.js";
import { start as startEta } from "./job/eta.js";
import { start as startEvents } from "./job/events.js";
import { start as startHeader } from "./job/header.js";
import { start as startLogs } from "./job/logs.js";
import { start as startWhy } from "./job/why.js";

const RANKS_SETTLE_MS = 500;

const root = document.getElementById("job");
const page = readJson("live-job");
page.job = Number(root.dataset.job);
const parts = [startHeader, startEta, startWhy, startCharts, startLogs, startEvents].map((start) => start(page, root));

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

tell("showState", page.state, page.state);
tell("append", page.append);
refreshTimes(root);
scrollToTab();
document.documentElement.dataset.ready = clock(new Date());
