// The list of jobs, kept live: states, GPUs and progress as they change, new rows and gone ones without a reload.

import { readJson } from "../charts.js";
import { setField, showProgress, showState } from "../fields.js";
import { refreshTimes } from "../frame.js";
import { live } from "../live.js";
import { showCurrent } from "./list/keys.js";

const results = document.getElementById("results");
//: Many changes at once are one fetch, and pages that hear of the same one do not ask at the same moment.
const REFRESH_MS = 700;
const SPREAD_MS = 600;

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
  const without = results.querySelector("#jobs").dataset.without.split(" ");
  return (values.slots > 0 && without.includes("slots")) || (values.progress != null && without.includes("progress"));
}

let timer = null;

export function refreshSoon(milliseconds = REFRESH_MS + Math.random() * SPREAD_MS) {
  if (timer !== null) return;
  timer = setTimeout(() => {
    timer = null;
    if (document.hidden) document.addEventListener("visibilitychange", () => refreshSoon(0), { once: true });
    else refresh().catch(() => {});
  }, milliseconds);
}

//: What the server says of the same address now. It is the server's own page, parsed: no script in it runs.
async function refresh() {
  const response = await fetch(`${results.dataset.rows}${location.search}`);
  if (!response.ok || response.redirected) return;
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html").body;
  const table = results.querySelector("#jobs");
  if (table && fresh.querySelector("#jobs")) keepRows(table, fresh.querySelector("#jobs"));
  const focused = results.contains(document.activeElement) ? pathTo(document.activeElement) : null;
  results.replaceChildren(...fresh.childNodes);
  refreshTimes(results);
  if (focused) results.querySelector(focused)?.focus();
  showCurrent();
  document.dispatchEvent(new CustomEvent("tidepool:rows"));
}

//: What was chosen stays chosen; what is new shows that it is.
function keepRows(table, fresh) {
  for (const row of fresh.querySelectorAll("tr[data-job]")) {
    const old = table.querySelector(`tr[data-job="${row.dataset.job}"]`);
    row.classList.toggle("is-new", !old);
    const box = row.querySelector("input[type=checkbox]");
    if (box) box.checked = old?.querySelector("input[type=checkbox]").checked ?? false;
  }
}

//: The same element in the rows that come.
function pathTo(element) {
  const row = element.closest("tr[data-job]");
  if (row) return `tr[data-job="${row.dataset.job}"] ${element.tagName.toLowerCase()}`;
  return element.rel ? `a[rel="${element.rel}"]` : element.tagName.toLowerCase();
}

for (const { name, seq } of readJson("live-jobs").topics) {
  live.watch({
    name,
    seq,
    url: `/jobs/live/${name}.json`,
    onState: (state, news) => {
      const changes = Object.entries(news.jobs ?? {}).map(([job, values]) => showJob(job, values));
      if (changes.includes(true)) refreshSoon();
    },
    onAppend: (news) => news.jobs?.length && refreshSoon(),
    onSnapshot: () => refreshSoon(0),
  });
}

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
