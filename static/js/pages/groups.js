// The list of instance groups, one of them, or the fair shares: fetched whenever GPUs change hands or a group is changed.

import { readJson } from "../figure.js";
import { refresher } from "../fresh.js";
import { live } from "../live.js";

const soon = refresher(document.getElementById("now"));
for (const [name, seq] of Object.entries(readJson("live-groups"))) {
  live.watch({ name, seq, onState: soon, onAppend: soon });
}
document.documentElement.dataset.ready = "yes";
