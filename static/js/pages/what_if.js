// Asks for replays, and shows one: how far it is while it is played, then two charts over the same time, recorded above
// replayed, and moments of it.

import { TideChart } from "../charts.js";
import { localTime, readJson } from "../figure.js";
import { fetchJson } from "../live.js";

const ASK_MS = 1_000;

//: Times are typed and shown in the viewer's zone, and sent as moments.
for (const field of document.querySelectorAll('input[type="datetime-local"]')) {
  if (field.defaultValue) field.value = localTime(Date.parse(`${field.defaultValue}Z`)).slice(0, 19);
  document.getElementById(`${field.id}_helptext`).textContent = "In your time.";
  field.form.addEventListener("formdata", ({ formData }) => {
    const typed = formData.get(field.name);
    if (typed) formData.set(field.name, new Date(typed).toISOString());
  });
}

const going = document.getElementById("going");

async function ask() {
  const replay = await fetchJson(going.dataset.replay);
  if (replay.state === "DONE" || replay.state === "FAILED") {
    location.reload();
    return;
  }
  going.querySelector("progress").value = replay.progress;
  if (replay.state === "RUNNING") going.querySelector("span").textContent = `${Math.round(100 * replay.progress)} % played.`;
  setTimeout(askAgain, ASK_MS);
}

//: The site may be away for a while; a replay that was removed is gone for good.
function askAgain() {
  ask().catch((error) => {
    if (error.status === 404) location.assign("/what-if/");
    else setTimeout(askAgain, ASK_MS);
  });
}

if (going) askAgain();

if (document.getElementById("replay-figures")) {
  const { start, end } = readJson("replay-window");
  const until = Date.parse(end);
  for (const [name, figure] of Object.entries(readJson("replay-figures"))) {
    new TideChart(document.querySelector(`[data-chart="${name}"]`), figure, { windowMs: until - Date.parse(start), endOf: () => until });
  }
}
