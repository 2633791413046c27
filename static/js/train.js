// Start a training: picking a model fills in its usual dataset, and the panel beside says what will happen.

import { readJson } from "./charts.js";
import { setField } from "./fields.js";

const choices = readJson("train-choices");
const form = document.querySelector("form.form-page");
const preview = document.getElementById("preview");
const field = (name) => form.elements.namedItem(name);
const growing = document.getElementById("id_max_slots_helptext").textContent;
let proposed = field("dataset").value;

function gpus(count) {
  return count === 1 ? "1 GPU" : `${count} GPUs`;
}

function wholeNumber(name) {
  const value = Number(field(name).value);
  return Number.isInteger(value) && value > 0 ? value : null;
}

function sizeSentence(model, group) {
  const isElastic = !model || model.engine === "elastic";
  const most = wholeNumber("max_slots");
  const least = isElastic ? wholeNumber("min_slots") : most;
  const pool = `the ${gpus(group.capacity)} of ${group.name}`;
  if (!most || !least) return "Say how many GPUs it may have.";
  if (most > group.capacity) return `${group.name} has ${gpus(group.capacity)}: ask for at most ${group.capacity}.`;
  if (most < least) return "At most is less than at least: raise the one or lower the other.";
  if (most === least) return `It waits for ${most} of ${pool} and keeps as many to its end.`;
  return `It starts as soon as it gets ${least} of ${pool}, and grows up to ${most} while it trains.`;
}

function sharingSentence(model, group) {
  if (model && model.engine !== "elastic") return `${group.sharing} ${group.stopping}`;
  const giving = group.preemption ? "When others are due, it gives GPUs back after its current step and goes on with the rest: nothing is lost." : "What it has it keeps.";
  return `${group.sharing} ${giving}`;
}

function exactnessSentence(model) {
  if (model && model.engine !== "elastic") return "";
  if (field("exactness").value === "sum") return "Results equal those of one GPU but for rounding. BatchNorm and dropout depend on how many GPUs there are, as in any data-parallel training.";
  const parts = wholeNumber("virtual_ranks") ?? 2 ** Math.ceil(Math.log2(wholeNumber("max_slots") ?? 1));
  return `Weights, optimizer and BatchNorm statistics are the same bits through any resize or failure: each step is computed in ${parts} parts, added up in one order. It costs speed, most where few GPUs compute many parts.`;
}

function showEngine(isElastic) {
  for (const part of form.querySelectorAll("[data-elastic]")) part.hidden = !isElastic;
  form.querySelector("[data-bitwise]").hidden = !isElastic || field("exactness").value !== "bitwise";
  form.querySelector('label[for="id_max_slots"]').textContent = isElastic ? "At most" : "Exactly";
  document.getElementById("id_max_slots_helptext").textContent = isElastic ? growing : "It starts once it gets all of them.";
}

function showPreview() {
  const model = choices.models[field("model").value];
  const isElastic = !model || model.engine === "elastic";
  if (!isElastic) field("exactness").value = "sum"; // its script adds up as it does
  const group = choices.groups[field("instance_group").value];
  setField(preview, "size", group ? sizeSentence(model, group) : "");
  setField(preview, "sharing", group ? sharingSentence(model, group) : "");
  setField(preview, "exactness", exactnessSentence(model));
  preview.querySelector("[data-model]").hidden = !model;
  setField(preview, "model", model?.name ?? "");
  setField(preview, "description", model?.description ?? "");
  setField(preview, "parameters", model?.parameters || "It has none.");
  showEngine(isElastic);
}

//: What the user picked stays; what was only proposed follows the model.
function proposeDataset() {
  const usual = choices.models[field("model").value]?.dataset;
  if (!usual || (field("dataset").value && field("dataset").value !== proposed)) return;
  field("dataset").value = String(usual);
  proposed = field("dataset").value;
}

field("model").addEventListener("change", proposeDataset);
form.addEventListener("input", showPreview);
showPreview();
