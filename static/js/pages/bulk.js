// Many jobs at once: choose rows, then stop them or give them a priority.

import { ask } from "../ask.js";
import { whileBusy } from "../busy.js";
import { element } from "../dom.js";
import { refresh } from "../fresh.js";
import { fetchJson } from "../live.js";
import { say } from "../toasts.js";

const results = document.getElementById("results");
const bar = document.getElementById("bulk");
const refused = document.getElementById("refused");
const compare = document.getElementById("bulk-compare");
//: As many as the page that compares takes.
const COMPARED = { least: 2, most: 8 };
const stop = document.getElementById("bulk-stop");

function boxes() {
  return [...results.querySelectorAll("#jobs tbody input[type=checkbox]")];
}

function chosen() {
  return boxes()
    .filter((box) => box.checked)
    .map((box) => Number(box.value));
}

function trainings(count) {
  return count === 1 ? "1 training" : `${count} trainings`;
}

function show() {
  const all = boxes();
  const count = chosen().length;
  bar.hidden = count === 0;
  document.getElementById("bulk-count").textContent = count ? `${trainings(count)} chosen` : "";
  compare.disabled = count < COMPARED.least || count > COMPARED.most;
  compare.title = compare.disabled ? `Choose ${COMPARED.least} to ${COMPARED.most} trainings to compare their curves.` : "";
  const head = document.getElementById("choose-all");
  if (!head) return;
  head.checked = count > 0 && count === all.length;
  head.indeterminate = count > 0 && count < all.length;
}

function chooseAll(on) {
  for (const box of boxes()) box.checked = on;
  show();
}

async function send(body) {
  const response = await fetch("/api/v1/jobs/bulk/", {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "application/json", "X-CSRFToken": bar.elements.csrfmiddlewaretoken.value },
    body: JSON.stringify(body),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

//: What did not happen stays on the page, in words, until the next action.
function showRefused(what, answer) {
  const items = answer.refused.map(({ job, name, error }) => element("li", {}, `${name ? `“${name}”` : `Job ${job}`}: ${error}`));
  refused.hidden = items.length === 0;
  refused.replaceChildren(element("strong", {}, `${trainings(items.length)} ${what}:`), element("ul", {}, ...items));
}

//: Takes back what was answered; those that were changed again since stay as they are, and are listed.
async function undo(changes) {
  const answer = await send({ action: "undo", changes });
  showRefused("not changed back", answer);
  refresh(results);
  return answer.done.length
    ? `${trainings(answer.done.length)} ${answer.done.length === 1 ? "has its" : "have their"} former priority again.`
    : "None was changed back.";
}

async function act(button, body, done, not) {
  try {
    const answer = await whileBusy(button, () => send(body));
    if (!answer) return;
    if (answer.done.length) say(`${trainings(answer.done.length)} ${done}`, { undo: answer.changes.length ? () => undo(answer.changes) : null });
    showRefused(not, answer);
    chooseAll(false);
    refresh(results);
  } catch (error) {
    say(error.message, { kind: "error" });
  }
}

async function stopChosen() {
  const jobs = chosen();
  const question = await whileBusy(stop, () => fetchJson(`${bar.dataset.question}?jobs=${jobs.join(",")}`));
  if (!question) return;
  if (question.jobs.length === 0) {
    say(question.lost, { kind: "error" });
    return;
  }
  if (await ask({ ...question, keep: "Keep training" })) await act(stop, { action: "cancel", jobs }, "being stopped.", "not stopped");
}

async function setPriority() {
  const jobs = chosen();
  const priority = bar.elements["bulk-priority"].valueAsNumber;
  const what = trainings(jobs.length);
  const agreed = await ask({
    title: `Set the priority of ${what} to ${priority}?`,
    lost: "The scheduler decides again at once: these trainings may get more GPUs or fewer, and so may others that share GPUs with them.",
    yes: `Set the priority of ${what}`,
    danger: false,
  });
  if (agreed)
    await act(
      bar.querySelector("button[type=submit]"),
      { action: "priority", jobs, priority },
      `${jobs.length === 1 ? "has" : "have"} the priority ${priority} now.`,
      "kept the priority",
    );
}

results.addEventListener("change", (event) => {
  if (event.target.id === "choose-all") chooseAll(event.target.checked);
  else show();
});
bar.addEventListener("submit", (event) => {
  event.preventDefault();
  setPriority();
});
stop.addEventListener("click", () => stopChosen().catch((error) => say(error.message, { kind: "error" })));
compare.addEventListener("click", () => location.assign(`${compare.dataset.compare}?jobs=${chosen().join(",")}`));
document.getElementById("bulk-clear").addEventListener("click", () => chooseAll(false));
results.addEventListener("htmx:afterSwap", show);
show();
