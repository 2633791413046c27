// The list of instance groups, one of them, or the fair shares: fetched whenever GPUs are reassigned or a group is changed.

import { readJson } from "../figure.js";
import { renewer } from "../fresh.js";
import { isUrgent, live } from "../live.js";
import { startTrace } from "../pool.js";

const renew = renewer(document.getElementById("now"));
//: Chart of one group's trainings.
const panel = document.querySelector('[data-chart="group"]');
const trace = panel && startTrace(panel);

for (const [name, seq] of Object.entries(readJson("live-groups"))) {
  live.watch({
    name,
    seq,
    onState: (_, news) => {
      renew(isUrgent(news));
      if (isUrgent(news)) trace?.askSoon();
    },
    onAppend: () => {
      renew(true);
      trace?.askSoon();
    },
  });
}
document.documentElement.dataset.ready = "yes";
