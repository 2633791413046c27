// The list of datasets and the page of one: states and progress of checks, kept live.

import { readJson } from "../figure.js";
import { setField, showProgress, showState } from "../fields.js";
import { refreshTimes } from "../frame.js";
import { live } from "../live.js";

const page = readJson("live-datasets");
const one = document.getElementById("dataset");
const OVER = new Set(["READY", "INVALID"]);
let isLeaving = false;
const UNITS = ["bytes", "KiB", "MiB", "GiB", "TiB"];

//: The same words as the filter `size` of the templates.
function size(count) {
  if (count === null || count === undefined) return "unknown";
  const power = Math.min(4, Math.max(0, Math.floor(Math.log2(Math.max(1, count)) / 10)));
  return `${power ? (count / 1024 ** power).toFixed(1) : count} ${UNITS[power]}`;
}

function showRow(id, news) {
  const row = document.querySelector(`#datasets tr[data-dataset="${id}"]`);
  if (!row) return;
  if (news.state === "DELETED") {
    row.remove();
    return;
  }
  showState(row, news.state);
  showProgress(row, news.progress);
  row.querySelector("progress").hidden = news.state !== "CHECKING";
  setField(row, "version", String(news.version));
  setField(row, "files", String(news.file_count ?? "–"));
  setField(row, "size", size(news.size_bytes));
}

//: What a check has found comes as the server renders it. The dialogs stay: somebody may be reading one.
async function showResult() {
  const response = await fetch(location.href);
  if (!response.ok) return;
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  for (const id of ["dataset", "versions"]) document.getElementById(id).replaceWith(fresh.getElementById(id));
  refreshTimes();
}

function showOne(news) {
  const shown = document.getElementById("dataset");
  if (news.state === "DELETED") {
    if (!isLeaving) location.assign("/datasets/");
    return;
  }
  if (String(news.version) !== shown.dataset.version) return;
  const badge = shown.querySelector(".state");
  if (OVER.has(news.state) || (news.state === "WAITING") !== (badge.dataset.state === "WAITING")) {
    if (badge.dataset.state !== news.state) showResult();
    return;
  }
  showState(shown, news.state);
  showProgress(shown, news.progress);
}

//: Who deletes it here is on the way to the list already, where a sentence about it is shown once.
addEventListener("submit", () => (isLeaving = true));

const ids = Object.keys(page.state);
live.watch({
  name: "datasets",
  seq: page.seq,
  url: `/datasets/live.json?${ids.map((id) => `id=${id}`).join("&")}`,
  onState: (state, news) => {
    for (const [id, values] of Object.entries(news)) {
      if (!one) showRow(id, values);
      else if (id === one.dataset.dataset) showOne(values);
    }
  },
});
