// The list of instance groups, one of them, or the fair shares: fetched whenever GPUs change hands or a group is changed.

import { readJson } from "../figure.js";
import { renewer } from "../fresh.js";
import { isUrgent, live } from "../live.js";

const renew = renewer(document.getElementById("now"));
for (const [name, seq] of Object.entries(readJson("live-groups"))) {
  live.watch({ name, seq, onState: (_, news) => renew(isUrgent(news)), onAppend: () => renew(true) });
}
document.documentElement.dataset.ready = "yes";
