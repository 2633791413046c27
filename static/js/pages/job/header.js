// The top of a job's page: state, sentence, key figures, time left, and what can be asked of it now.

import { setField, showProgress, showState } from "../../dom.js";
import { readJson } from "../../figure.js";
import { atMostEvery, fetchJson } from "../../live.js";
import { duration, isOver } from "../../words.js";

const ETA_MS = 5_000;

export function start(page, root) {
  const refusals = readJson("job-refusals");
  let shown = page.state;
  let estimated = progressOf(page.state);
  const estimate = async () => showTimeLeft(root, await fetchJson(`/api/v1/jobs/${page.job}/eta/`));
  const estimateSoon = atMostEvery(ETA_MS, estimate);
  if (!isOver(page.state.state)) estimateSoon();
  root.addEventListener("click", refuse, true);
  setInterval(() => showElapsed(root, shown), 1_000);

  return {
    showState(state) {
      shown = state;
      showState(root, state.state);
      root.querySelector("h1 .mark").classList.toggle("over", isOver(state.state));
      for (const element of root.querySelectorAll("[data-when]")) {
        element.hidden = !element.dataset.when.split(" ").includes(state.state);
      }
      showActions(root, refusals[state.state], state.state);
      setField(root, "reason", state.reason.text);
      for (const name of ["slots", "max_slots", "step", "epoch", "priority"]) setField(root, name, String(state[name]));
      showProgress(root, state.progress);
      if (state.step && state.progress) setField(root, "measured", `${state.step} of ${Math.round(state.step / state.progress)} samples`);
      showNumbers(root, state.final_metrics ?? {});
      setField(root, "gpus-note", state.target_slots === state.slots || state.finished_at ? "" : `, ${state.target_slots} once the change is complete`);
      showElapsed(root, state);
      if (isOver(state.state)) setField(root, "eta", "");
      else if (progressOf(state) !== estimated) estimateSoon();
      estimated = progressOf(state);
    },
  };
}

//: The remaining time is fetched again when one of these values changes.
function progressOf(state) {
  return `${state.state} ${state.step} ${state.slots} ${state.generation}`;
}

//: Disables actions that are not possible now; each stays in its place and says why. What has ended is not suspended or stopped.
function showActions(root, refused, state) {
  for (const button of root.querySelectorAll("[data-action]")) {
    const why = refused[button.dataset.action];
    button.title = why;
    button.classList.toggle("disabled", why !== "");
    if (why) button.setAttribute("aria-disabled", "true");
    else button.removeAttribute("aria-disabled");
    button.ariaDescription = why || null;
    if (button.dataset.action === "suspend") button.hidden = isOver(state) || state === "SUSPENDED";
    if (button.dataset.action === "cancel") button.hidden = isOver(state);
  }
}

function refuse(event) {
  if (!event.target.closest('[data-action][aria-disabled="true"]')) return;
  event.preventDefault();
  event.stopPropagation();
}

//: Metrics that the header shows as the accuracy, the first one that there is. Those whose unit is known are in percent.
const ACCURACIES = ["test_accuracy", "accuracy", "val_accuracy", "eval_accuracy", "test_acc", "acc", "val_acc", "train_acc", "acc@1", "acc1", "top1"];
const LOSSES = ["loss", "train_loss", "test_loss", "val_loss", "eval_loss"];

function showNumbers(root, values) {
  const reported = (names) => names.find((name) => values[name] !== undefined);
  const loss = reported(LOSSES);
  const name = reported(ACCURACIES);
  const accuracy = values[name];
  const percent = name?.endsWith("accuracy");
  setField(root, "loss-label", loss && loss !== "loss" ? loss : "Loss");
  setField(root, "loss", number(values[loss], 3));
  document.getElementById("accuracy").hidden = name === undefined;
  setField(root, "accuracy-label", name === "test_accuracy" ? "test accuracy" : (name ?? "accuracy"));
  setField(root, "accuracy", percent && accuracy !== null ? `${accuracy.toFixed(1)} %` : number(accuracy, 3));
}

function number(value, digits) {
  return value === null || value === undefined ? "–" : Number(value).toPrecision(digits);
}

//: Since its first start; before that, how long it has waited.
function showElapsed(root, state) {
  const since = state.started_at ?? state.submitted_at;
  const until = state.finished_at ? Date.parse(state.finished_at) : Date.now();
  setField(root, "elapsed-label", state.started_at ? "Elapsed" : "Waited");
  setField(root, "elapsed", duration(until - Date.parse(since)));
}

function showTimeLeft(root, { earliest_seconds: earliest, latest_seconds: latest, text }) {
  setField(root, "eta", earliest === null ? text : `${range(earliest, latest)} left`);
  for (const note of root.querySelectorAll('[data-field="eta"]')) note.title = text;
}

//: Range as exact as it is known: "about 4 min", "4 to 6 min".
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
