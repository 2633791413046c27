// The list of jobs, kept live: states, GPUs and progress as they change, new rows and gone ones without a reload.

import { setField, showProgress, showState } from "../dom.js";
import { readJson } from "../figure.js";
import { followRows, refresh, refresher, renderAt } from "../fresh.js";
import { isUrgent, live } from "../live.js";
import { duration } from "../words.js";
import "./list/bulk.js";

const SOON_MS = 500;
const SPREAD_MS = 200;

const results = document.getElementById("results");
const refreshNow = refresher(results, SOON_MS);
//: Pages that hear of the same change do not ask at the same moment.
const refreshSoon = () => setTimeout(refreshNow, Math.random() * SPREAD_MS);
//: Metrics that were chosen as columns change with every step.
const METRICS_MS = 2_000;
const measureSoon = refresher(results, METRICS_MS);
const COUNTS_MS = 3_000;
const countSoon = refresher(document.getElementById("states"), COUNTS_MS);

function rowOf(job) {
  return results.querySelector(`#jobs tr[data-job="${CSS.escape(job)}"]`);
}

//: True if the job may have entered or left what is shown: then the server is asked.
function showJob(job, values) {
  const row = rowOf(job);
  if (!row) return false;
  const isOther = values.state !== undefined && row.querySelector(".state").dataset.state !== values.state;
  if (values.state) showState(row, values.state);
  for (const name of ["slots", "max_slots", "priority"]) {
    if (values[name] !== undefined) setField(row, name, String(values[name]));
  }
  if (values.progress !== undefined) showProgress(row, values.progress);
  return isOther || values.priority !== undefined || isHidden(values);
}

//: A value for a column that is hidden because no row had one.
function isHidden(values) {
  const { without: hidden, chosen } = results.querySelector("#jobs").dataset;
  if (chosen !== undefined) return false;
  const without = hidden.split(" ");
  return (values.slots > 0 && without.includes("slots")) || (values.progress != null && without.includes("progress"));
}

for (const { name, seq } of readJson("live-jobs").topics) {
  live.watch({
    name,
    seq,
    onState: (_, news) => {
      const changes = Object.entries(news.jobs ?? {}).map(([job, values]) => showJob(job, values));
      // The queue position of a waiting training depends on other trainings.
      const moves = results.querySelector('.state[data-state="PENDING"]') && isUrgent({ jobs: news.jobs ?? {} });
      const isGrouped = results.querySelector("#job-groups") && Object.values(news.jobs ?? {}).some((values) => values.state);
      if (changes.includes(true) || moves || isGrouped) refreshSoon();
      if (Object.values(news.jobs ?? {}).some((values) => values.state)) countSoon();
    },
    onAppend: (news) => {
      if (!news.jobs?.length) return;
      refreshSoon();
      countSoon();
    },
    onSnapshot: () => refresh(results),
  });
}

//: Why a training has so many GPUs changes with others, too. Its progress is in its own topic alone.
followRows(
  results,
  (isUrgent) => (isUrgent ? refreshSoon() : measureSoon()),
  (news, job) => {
    if (news.progress !== undefined && showJob(job, { progress: news.progress })) refreshSoon();
    return news.reason || (news.final_metrics && results.querySelector("#jobs[data-metrics]"));
  },
);

// --- Dates are days of the viewer: the address says their moments, so that it means the same to everybody -----------

const form = document.getElementById("filter");

function dayOf(moment) {
  const at = new Date(moment);
  return [at.getFullYear(), at.getMonth() + 1, at.getDate()].map((part) => String(part).padStart(2, "0")).join("-");
}

for (const input of form.querySelectorAll("[data-moment]")) input.value = dayOf(input.dataset.moment);

form.addEventListener("formdata", ({ formData }) => {
  for (const [name, text] of [...formData]) {
    if (!text) formData.delete(name);
    else if (form.elements[name].type === "date") formData.set(name, new Date(`${text}T00:00`).toISOString());
  }
});

// --- The list follows what is typed. The address follows the list, not the form: actions on "all matching" go by it. ---

const list = document.getElementById("list");
const unfiltered = document.getElementById("unfiltered");
const TYPING_MS = 250;
const AGAIN_MS = 5_000;
let typing = 0;
let wanted = addressNow();
let isLoggedOut = false;

function addressNow() {
  return `${location.pathname}${location.search}`;
}

function addressOf(filter) {
  const query = new URLSearchParams(new FormData(filter)).toString();
  return `${filter.getAttribute("action") ?? location.pathname}${query ? `?${query}` : ""}`;
}

async function filterNow() {
  clearTimeout(typing);
  wanted = addressOf(form);
  const asked = wanted;
  const isShown = asked === addressNow() || (await renderAt(list, asked, { select: "#list", swap: "morph:outerHTML" }));
  if (asked !== wanted) return; // the filter has changed meanwhile, and the next request is under way
  showFiltered(isShown);
  if (!isShown || asked === addressNow()) return;
  history.replaceState(history.state, "", asked);
  // Their addresses have changed with the filter.
  window.htmx.process(list);
  list.dispatchEvent(new CustomEvent("tidepool:filtered"));
  refresh(document.getElementById("states"));
}

function showFiltered(isShown) {
  unfiltered.querySelector("[data-again]").hidden = isLoggedOut;
  unfiltered.hidden = isShown;
  if (!isShown && !isLoggedOut) typing = setTimeout(filterNow, AGAIN_MS);
}

addEventListener("online", () => unfiltered.hidden || filterNow());
document.addEventListener("tidepool:logged-out", () => {
  isLoggedOut = true;
});

function filterSoon() {
  clearTimeout(typing);
  typing = setTimeout(filterNow, TYPING_MS);
}

form.addEventListener("input", filterSoon);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  filterNow();
});

// --- Running times of trainings ------------------

const TICK_MS = 5_000;

setInterval(() => {
  for (const cell of results.querySelectorAll("[data-since]")) cell.textContent = duration(Date.now() - Date.parse(cell.dataset.since));
}, TICK_MS);

// --- Keys, as mail readers have them: the page declares them as elements with `data-key` ---

let current = null;

function rows() {
  return [...document.querySelectorAll("#jobs tr[data-job]")];
}

//: Shows where one is; rows may have been replaced since.
function showCurrent() {
  for (const row of rows()) row.classList.toggle("is-current", row.dataset.job === current);
}

function move(by) {
  const all = rows();
  const at = all.findIndex((row) => row.dataset.job === current);
  const row = all[Math.min(all.length - 1, Math.max(0, at + (at < 0 && by < 0 ? 0 : by)))];
  if (!row) return;
  current = row.dataset.job;
  showCurrent();
  row.querySelector("a").focus({ preventScroll: true });
  row.scrollIntoView({ block: "nearest" });
}

const ACTIONS = {
  j: () => move(1),
  k: () => move(-1),
  x: () =>
    rows()
      .find((row) => row.dataset.job === current)
      ?.querySelector("input[type=checkbox]")
      ?.click(),
};

document.addEventListener("tidepool:key", ({ detail }) => ACTIONS[detail.key]?.());
results.addEventListener("htmx:afterSwap", showCurrent);
