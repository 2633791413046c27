// The top of a job's page: state, sentence, key figures, error, and what can be asked of it now.

import { readJson } from "../../charts.js";
import { setField, showProgress, showState } from "../../fields.js";
import { refreshTimes } from "../../frame.js";
import { duration } from "../../words.js";

export function start(page, root) {
  const refusals = readJson("job-refusals");
  let shown = page.state;
  root.addEventListener("click", refuse, true);
  setInterval(() => showElapsed(root, shown), 1_000);

  return {
    showState(state) {
      shown = state;
      showState(root, state.state);
      for (const element of root.querySelectorAll("[data-when]")) {
        element.hidden = !element.dataset.when.split(" ").includes(state.state);
      }
      showActions(root, refusals[state.state], state.state);
      setField(root, "reason", state.reason.text);
      for (const name of ["slots", "max_slots", "step", "epoch", "priority"]) setField(root, name, String(state[name]));
      showProgress(root, state.progress);
      if (state.step && state.progress) setField(root, "measured", `${state.step} of ${Math.round(state.step / state.progress)} samples`);
      showNumbers(root, state.final_metrics ?? {});
      showError(state.error);
      showMoment(root, "started_at", state.started_at);
      showMoment(root, "finished_at", state.finished_at);
      setField(root, "gpus-note", state.target_slots === state.slots || state.finished_at ? "" : `${state.target_slots} once they have changed hands`);
      showElapsed(root, state);
    },
  };
}

//: What is not possible now stays in its place and says why.
function showActions(root, refused, state) {
  for (const button of root.querySelectorAll("[data-action]")) {
    const why = refused[button.dataset.action];
    button.title = why;
    button.classList.toggle("disabled", why !== "");
    if (why) button.setAttribute("aria-disabled", "true");
    else button.removeAttribute("aria-disabled");
    button.ariaDescription = why || null;
    if (button.dataset.action === "suspend") button.hidden = state === "SUSPENDED";
  }
}

function refuse(event) {
  if (!event.target.closest('[data-action][aria-disabled="true"]')) return;
  event.preventDefault();
  event.stopPropagation();
}

function showNumbers(root, values) {
  const isTested = values.test_accuracy !== undefined;
  const accuracy = isTested ? values.test_accuracy : values.accuracy;
  setField(root, "loss", number(values.loss, 3));
  setField(root, "accuracy-label", isTested ? "accuracy on the test data" : "accuracy");
  setField(root, "accuracy", accuracy === null || accuracy === undefined ? "–" : `${accuracy.toFixed(1)} %`);
}

function number(value, digits) {
  return value === null || value === undefined ? "–" : Number(value).toPrecision(digits);
}

function showError(error) {
  const box = document.getElementById("failure");
  box.hidden = !error;
  if (!error) return;
  setField(box, "error-title", error.kind || "Failed");
  setField(box, "error-message", error.message || "");
  setField(box, "error-tried", error.tried || "");
  setField(box, "error-traceback", error.traceback || "");
  box.querySelector("details").hidden = !error.traceback;
}

function showMoment(root, name, at) {
  const time = root.querySelector(`[data-field="${name}"] time`);
  if (!at || time?.dateTime === at) return;
  const fresh = document.createElement("time");
  fresh.dateTime = at;
  fresh.dataset.relative = "";
  root.querySelector(`[data-field="${name}"]`).replaceChildren(fresh);
  refreshTimes(root);
}

//: Since its first start; before that, how long it has waited.
function showElapsed(root, state) {
  const since = state.started_at ?? state.submitted_at;
  const until = state.finished_at ? Date.parse(state.finished_at) : Date.now();
  setField(root, "elapsed-label", state.started_at ? "Elapsed" : "Waited");
  setField(root, "elapsed", duration(until - Date.parse(since)));
}
