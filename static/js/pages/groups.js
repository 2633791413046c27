// The list of instance groups, or one of them: fetched as the server renders it whenever GPUs change hands or a group is changed.

import { readJson } from "../figure.js";
import { refreshTimes } from "../frame.js";
import { live } from "../live.js";

const SOON_MS = 500;
const FOCUSABLE = "a[href], button, input";

const now = document.getElementById("now");
let timer = null;
let isMissed = false;

//: Replaces what is in `place`; the focus goes back to the same link of the same row.
function replace(place, nodes) {
  const focused = place.contains(document.activeElement) ? document.activeElement : null;
  const row = focused?.closest("[data-row]")?.dataset.row;
  const number = row === undefined ? -1 : [...focused.closest("[data-row]").querySelectorAll(FOCUSABLE)].indexOf(focused);
  place.replaceChildren(...nodes);
  if (number >= 0) place.querySelector(`[data-row="${CSS.escape(row)}"]`)?.querySelectorAll(FOCUSABLE)[number]?.focus({ preventScroll: true });
  refreshTimes(place);
}

async function renew() {
  const response = await fetch(now.dataset.now + location.search);
  if (!response.ok || response.redirected) return;
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html").body;
  for (const part of fresh.querySelectorAll("template[data-fresh]")) {
    const place = document.querySelector(`[data-part="${part.dataset.fresh}"]`);
    if (place) replace(place, [...part.content.childNodes]);
    part.remove();
  }
  replace(now, [...fresh.childNodes]);
}

function renewSoon() {
  if (document.hidden) {
    isMissed = true;
    return;
  }
  if (timer !== null) return;
  timer = setTimeout(() => {
    timer = null;
    renew().catch(() => {});
  }, SOON_MS);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden || !isMissed) return;
  isMissed = false;
  renewSoon();
});

for (const [name, seq] of Object.entries(readJson("live-groups"))) {
  live.watch({ name, seq, url: `/instance-groups/live/${name}.json`, onState: renewSoon, onAppend: renewSoon });
}
document.documentElement.dataset.ready = "yes";
