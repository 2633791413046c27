// Puts values into the elements that the server rendered. Everything is text, never markup.

import { inWords, percent } from "./words.js";

export function setField(root, name, text) {
  for (const element of root.querySelectorAll(`[data-field="${name}"]`)) {
    if (element.textContent !== text) element.textContent = text;
  }
}

export function showState(root, state) {
  const badge = root.querySelector(".state");
  if (!badge || badge.dataset.state === state) return;
  badge.dataset.state = state;
  badge.querySelector(".state-word").textContent = inWords(state);
}

export function showProgress(root, progress) {
  setField(root, "progress", percent(progress));
  const bar = root.querySelector("progress");
  if (bar) bar.value = progress ?? 0;
}

//: Looks of jobs: the same rule as `job_look` in core/charts.py.
export function jobMark(job, { free = false } = {}) {
  const mark = document.createElement("span");
  mark.setAttribute("aria-hidden", "true");
  if (free) {
    mark.className = "mark free";
  } else {
    mark.className = `mark job-${job % 12} pattern-${(job + Math.floor(job / 12)) % 6}`;
    mark.textContent = String.fromCharCode(65 + ((job - 1) % 26));
  }
  return mark;
}
