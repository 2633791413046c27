// The list of jobs: states, GPUs and progress of the rows shown, kept live.

import { readJson } from "./charts.js";
import { setField, showProgress, showState } from "./fields.js";
import { live } from "./live.js";

const page = readJson("live-cluster");

function showJob(job, values) {
  const row = document.querySelector(`#jobs tr[data-job="${job}"]`);
  if (!row) return;
  if (values.state) showState(row, values.state);
  for (const name of ["slots", "max_slots", "priority"]) {
    if (values[name] !== undefined) setField(row, name, String(values[name]));
  }
  if (values.progress !== undefined) showProgress(row, values.progress);
}

live.watch({
  name: "cluster",
  seq: page.seq,
  url: "/overview/live.json",
  onState: (state, news) => {
    for (const [job, values] of Object.entries(news.jobs ?? {})) showJob(job, values);
  },
});
