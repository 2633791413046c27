// The curves of a job's page: GPUs over time, loss and accuracy.

import { MetricsChart, readJson, TideChart } from "../../charts.js";

const OVER = new Set(["SUCCEEDED", "FAILED", "CANCELLED"]);

export function start(page, root) {
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
      if (OVER.has(state.state)) showOver(root);
    },
    append(news) {
      if (news === page.append) return; // the figures were made with these
      for (const point of news.allocation ?? []) tide.addStep(page.job, point);
      metrics.addPoints(news.metrics ?? []);
    },
    //: A new attempt may begin at an earlier step.
    showSnapshot(snapshot) {
      if (snapshot.state.attempt !== attempt) metrics.replacePoints([]);
      attempt = snapshot.state.attempt;
    },
  };
}

//: A chart that stays empty says so, and takes little room.
function showOver(root) {
  for (const empty of root.querySelectorAll(".chart-empty[data-over]")) {
    empty.textContent = empty.dataset.over;
    empty.classList.add("is-over");
  }
}
