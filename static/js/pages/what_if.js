// The pages of What if: the form for a replay, its progress, and the charts of its result.

import { TideChart } from "../charts.js";
import { localTime, readJson } from "../figure.js";
import { fetchJson } from "../live.js";

const POLL_MS = 1_000;

//: Times are shown and typed in the viewer's zone, and sent in UTC.
for (const field of document.querySelectorAll('input[type="datetime-local"]')) {
  if (field.defaultValue) field.value = localTime(Date.parse(`${field.defaultValue}Z`)).slice(0, 19);
  document.getElementById(`${field.id}_helptext`).textContent = "In your time zone.";
  field.form.addEventListener("formdata", ({ formData }) => {
    const typed = formData.get(field.name);
    if (typed) formData.set(field.name, new Date(typed).toISOString());
  });
}

const progress = document.getElementById("replay-progress");

async function update() {
  const replay = await fetchJson(progress.dataset.replay);
  if (replay.state === "DONE" || replay.state === "FAILED") {
    location.reload();
    return;
  }
  progress.querySelector("progress").value = replay.progress;
  if (replay.state === "RUNNING") progress.querySelector("span").textContent = `${Math.round(100 * replay.progress)} % done.`;
  setTimeout(poll, POLL_MS);
}

//: Polls until the replay is done or removed; other errors are retried, because the server may be restarting.
function poll() {
  update().catch((error) => {
    if (error.status === 404) location.assign("/what-if/");
    else setTimeout(poll, POLL_MS);
  });
}

if (progress) poll();

if (document.getElementById("replay-figures")) {
  const { start, end } = readJson("replay-window");
  const until = Date.parse(end);
  for (const [name, figure] of Object.entries(readJson("replay-figures"))) {
    new TideChart(document.querySelector(`[data-chart="${name}"]`), figure, { windowMs: until - Date.parse(start), endOf: () => until });
  }
}
