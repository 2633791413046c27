// How long the training still takes: asked for when it has made steps or changed its size, at most every few seconds.

import { setField } from "../../fields.js";
import { fetchJson } from "../../live.js";
import { duration } from "../../words.js";

const READ_MS = 5_000;

export function start(page, root) {
  let known = "";
  let readAt = 0;
  let timer = null;

  async function read() {
    timer = null;
    readAt = performance.now();
    show(root, await fetchJson(`/api/v1/jobs/${page.job}/eta/`));
  }

  return {
    showState(state) {
      const now = `${state.state} ${state.step} ${state.slots} ${state.generation}`;
      if (now === known || timer !== null || document.hidden) return;
      known = now;
      timer = setTimeout(() => read().catch(() => {}), Math.max(0, readAt + READ_MS - performance.now()));
    },
  };
}

function show(root, { earliest_seconds: earliest, latest_seconds: latest, text }) {
  setField(root, "eta", earliest === null ? text : `${range(earliest, latest)} left`);
  for (const note of root.querySelectorAll('[data-field="eta"]')) note.title = text;
}

//: As exact as it is known: "about 4 min", "4 to 6 min".
function range(earliest, latest) {
  const [least, most] = [roughly(earliest), roughly(latest)];
  return least === most ? `about ${least}` : `${least} to ${most}`;
}

function roughly(seconds) {
  if (seconds < 10) return "10 s";
  const unit = seconds < 60 ? 10 : seconds < 600 ? 30 : seconds < 3600 ? 60 : seconds < 36_000 ? 600 : 3600;
  const rounded = Math.round(seconds / unit) * unit;
  return duration(rounded * 1000).replace(/ 0 (s|min)$/, "");
}
