// The list of datasets and the page of one: fetched whenever a check goes on or ends.

import { isLeaving } from "../busy.js";
import { readJson } from "../figure.js";
import { refresher } from "../fresh.js";
import { live } from "../live.js";

const part = document.querySelector('[hx-trigger="fresh"]');
const { seq, state } = readJson("live-datasets");
const soon = refresher(part);

//: The page that deleted the dataset is already on its way to the list, which shows a sentence about it once.
part.addEventListener("htmx:responseError", ({ detail }) => {
  if (detail.xhr.status === 404 && !isLeaving()) location.assign("/datasets/");
});

live.watch({
  name: "datasets",
  seq,
  url: `/datasets/live.json?${Object.keys(state)
    .map((id) => `id=${id}`)
    .join("&")}`,
  onState: (_, news) => Object.keys(news).some((id) => id in state) && soon(),
});
