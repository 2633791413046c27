// Many jobs at once: choose rows, then stop them, give them a priority or a tag. The boxes of the rows are fields of the
// form in the bar, so that drafts.js keeps what is chosen over a reload and a log-in that ran out.

import { ask } from "../../ask.js";
import { whileBusy } from "../../busy.js";
import { CONSTANTS } from "../../constants.js";
import { element } from "../../dom.js";
import { forgetDraft } from "../../drafts.js";
import { refresh } from "../../fresh.js";
import { say } from "../../toasts.js";

const results = document.getElementById("results");
const bar = document.getElementById("bulk");
const refused = document.getElementById("refused");
const compare = document.getElementById("bulk-compare");
//: Number of trainings that the pages of comparison take: a few with their curves, more as a table of differences.
const COMPARED = { least: CONSTANTS.comparedLeast, most: CONSTANTS.comparedMost };
const stop = document.getElementById("bulk-stop");
const tag = document.getElementById("bulk-tag");
const addTag = document.getElementById("bulk-tag-add");
const whole = document.getElementById("bulk-matching");
//: Has a value if all are chosen that fit the filter, also those of other pages.
const { matching } = bar.elements;

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

//: Number of trainings that fit the filter, as the list of states says it.
function fitting() {
  return Number(document.querySelector("#states ul")?.dataset.fitting ?? 0);
}

//: Parameters that name the trainings of a question.
function meant() {
  const parameters = new URLSearchParams(matching.value ? location.search : "");
  for (const name of ["after", "before"]) parameters.delete(name);
  parameters.set(matching.value ? "matching" : "jobs", matching.value || chosen().join(","));
  return parameters;
}

async function questionOf(address, more = {}) {
  const parameters = meant();
  for (const [name, value] of Object.entries(more)) parameters.set(name, value);
  return answerOf(await fetch(`${address}?${parameters}`, { headers: { Accept: "application/json" } }));
}

async function answerOf(response) {
  if (response.status === 401) document.dispatchEvent(new CustomEvent("tidepool:logged-out"));
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

function show() {
  const all = boxes();
  const count = chosen().length;
  if (count === 0 || count < all.length) matching.value = "";
  bar.hidden = count === 0;
  const said = matching.value ? `All ${fitting()} matching trainings are selected` : `${trainings(count)} selected`;
  const reached = element("span", { className: "visually-hidden" }, ". Press A for what can be done with them.");
  document.getElementById("bulk-count").replaceChildren(...(count ? [said, reached] : []));
  whole.hidden = Boolean(matching.value) || count !== all.length || fitting() <= count;
  whole.textContent = `Select all ${fitting()} matching`;
  const compared = matching.value ? fitting() : count;
  compare.disabled = compared < COMPARED.least || compared > COMPARED.most;
  compare.title = compare.disabled ? `Select ${COMPARED.least} to ${COMPARED.most} trainings to compare them.` : "";
  addTag.disabled = Boolean(matching.value);
  addTag.title = matching.value ? "Tags apply to the trainings of one page: select trainings there." : "";
  const head = document.getElementById("choose-all");
  if (!head) return;
  head.checked = count > 0 && count === all.length;
  head.indeterminate = count > 0 && count < all.length;
}

//: Has drafts.js keep what is chosen, and the bar show it.
function keep() {
  const [box] = boxes();
  if (box && chosen().length) box.dispatchEvent(new Event("change", { bubbles: true }));
  else show();
}

function chooseAll() {
  matching.value = "";
  for (const box of boxes()) box.checked = true;
  keep();
}

function chooseNone() {
  for (const box of boxes()) box.checked = false;
  show();
  forgetDraft(bar);
}

async function send(body) {
  const headers = { "Content-Type": "application/json", Accept: "application/json", "X-CSRFToken": bar.elements.csrfmiddlewaretoken.value };
  return answerOf(await fetch("/api/v1/jobs/bulk/", { method: "POST", headers, body: JSON.stringify(body) }));
}

//: Trainings that refused stay on the page, with the reason, until the next action.
function showRefused(what, answer) {
  const items = answer.refused.map(({ job, name, error }) => element("li", {}, `${name ? `“${name}”` : `Training ${job}`}: ${error}`));
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
    : "No training was changed back.";
}

async function act(button, body, done, not) {
  try {
    const answer = await whileBusy(button, () => send(body));
    if (!answer) return;
    if (answer.done.length) say(`${trainings(answer.done.length)} ${done}`, { undo: answer.changes.length ? () => undo(answer.changes) : null });
    showRefused(not, answer);
    chooseNone();
    refresh(results);
  } catch (error) {
    say(error.message, { kind: "error" });
  }
}

async function stopChosen() {
  const asked = meant();
  const question = await whileBusy(stop, () => questionOf(bar.dataset.stop));
  if (!question) return;
  if (question.jobs.length === 0) {
    say(question.lost, { kind: "error" });
    return;
  }
  // Trainings that were chosen one by one are sent even if they are over by now: the answer says why they were not stopped.
  const jobs = asked.has("jobs") ? asked.get("jobs").split(",").map(Number) : question.jobs;
  if (await ask({ ...question, keep: "Keep training" })) await act(stop, { action: "cancel", jobs }, "being stopped.", "not stopped");
}

async function setPriority() {
  const button = bar.querySelector("button[type=submit]");
  const priority = bar.elements.priority.valueAsNumber;
  const question = await whileBusy(button, () => questionOf(bar.dataset.priority, { priority }));
  if (!question) return;
  const { jobs } = question;
  if (jobs.length === 0) {
    say(question.lost, { kind: "error" });
    return;
  }
  if (await ask({ ...question, danger: false }))
    await act(button, { action: "priority", jobs, priority }, `now ${jobs.length === 1 ? "has" : "have"} the priority ${priority}.`, "kept the priority");
}

async function addTagToChosen() {
  const add = tag.value.split(/\s+/).filter(Boolean);
  await act(addTag, { action: "tag", jobs: chosen(), add }, `${chosen().length === 1 ? "has" : "have"} the tag ${add.join(" ")}.`, "without the tag");
  tag.value = "";
}

results.addEventListener("change", (event) => {
  if (event.target.id !== "choose-all") show();
  else if (event.target.checked) chooseAll();
  else chooseNone();
});
matching.addEventListener("change", show);
bar.addEventListener("submit", (event) => {
  event.preventDefault();
  setPriority().catch((error) => say(error.message, { kind: "error" }));
});
whole.addEventListener("click", () => {
  matching.value = "1";
  keep();
});
stop.addEventListener("click", () => stopChosen().catch((error) => say(error.message, { kind: "error" })));
compare.addEventListener("click", () => location.assign(`${matching.value ? compare.dataset.differences : compare.dataset.compare}?${meant()}`));
addTag.addEventListener("click", addTagToChosen);
tag.addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault(); // the form sets the priority
  addTag.click();
});
document.getElementById("bulk-clear").addEventListener("click", chooseNone);
bar.addEventListener("tidepool:key", () => [...bar.querySelectorAll("button")].find((button) => button.checkVisibility() && !button.disabled).focus());
//: The filter, too, may be another one, and with it the address of the page.
document.getElementById("list").addEventListener("htmx:afterSwap", keep);
document.getElementById("list").addEventListener("tidepool:filtered", keep);
show();
