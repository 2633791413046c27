// Start a training: picking a model fills in its usual dataset and asks for its parameters, and the panel beside says
// what will happen.

import { element, setField } from "../dom.js";
import { readJson } from "../figure.js";
import { fetchJson } from "../live.js";
import { showBeside, watchPreview } from "../preview.js";
import { UploadBox } from "../upload.js";

const choices = readJson("train-choices");
const typed = readJson("typed-parameters");
const form = document.querySelector("form.form-page");
const panel = document.getElementById("preview");
const declared = document.getElementById("declared");
const field = (name) => form.elements.namedItem(name);
const growing = document.getElementById("id_max_slots_helptext").textContent;
const proposed = { dataset: field("dataset").value, name: choices.proposed_name };

function wholeNumber(name) {
  const value = Number(field(name).value);
  return Number.isInteger(value) && value > 0 ? value : null;
}

function sharingSentence(model, group) {
  if (model && model.engine !== "elastic") return `${group.sharing} ${group.stopping}`;
  const giving = group.preemption
    ? "When others are due, it gives GPUs back after its current step and goes on with the rest: nothing is lost."
    : "What it has it keeps.";
  return `${group.sharing} ${giving}`;
}

function exactnessSentence(model) {
  if (model && model.engine !== "elastic") return "";
  if (field("exactness").value === "sum")
    return "Results equal those of one GPU but for rounding. BatchNorm and dropout depend on how many GPUs there are, as in any data-parallel training.";
  const parts = wholeNumber("virtual_ranks") ?? 2 ** Math.ceil(Math.log2(wholeNumber("max_slots") ?? 1));
  return `Weights, optimizer and BatchNorm statistics are the same bits through any resize or failure: each step is computed in ${parts} parts, added up in one order. It costs speed, most where few GPUs compute many parts.`;
}

function showEngine(isElastic) {
  for (const part of form.querySelectorAll("[data-elastic]")) part.hidden = !isElastic;
  form.querySelector("[data-bitwise]").hidden = !isElastic || field("exactness").value !== "bitwise";
  form.querySelector('label[for="id_max_slots"]').textContent = isElastic ? "At most" : "Exactly";
  document.getElementById("id_max_slots_helptext").textContent = isElastic ? growing : "It starts once it gets all of them.";
}

function showWords() {
  const model = choices.models[field("model").value];
  const isElastic = !model || model.engine === "elastic";
  if (!isElastic) field("exactness").value = "sum"; // its script adds up as it does
  const group = choices.groups[field("instance_group").value];
  setField(panel, "sharing", group ? sharingSentence(model, group) : "");
  setField(panel, "exactness", exactnessSentence(model));
  setField(panel, "description", model?.description ? `${model.name}: ${model.description}` : "");
  showEngine(isElastic);
}

function parameterField({ name, kind, value }, number) {
  const part = document.getElementById("declared-field").content.firstElementChild.cloneNode(true);
  const [label, input, select] = part.children;
  (kind === "flag" ? input : select).remove();
  const control = kind === "flag" ? select : input;
  if (kind === "number") input.inputMode = "decimal";
  Object.assign(control, { name: `parameter.${name}`, id: `parameter-${number}`, value: typed.values[name] ?? value });
  label.htmlFor = control.id;
  label.textContent = name;
  if (typed.errors[name]) requestAnimationFrame(() => showBeside(control, [typed.errors[name]]));
  return part;
}

function showParameters() {
  const model = choices.models[field("model").value];
  const wanted = model?.parameters ?? [];
  declared.hidden = !wanted.length;
  setField(declared, "model", model?.name ?? "");
  declared.querySelector(".declared-fields").replaceChildren(...wanted.map(parameterField));
}

//: What the user picked stays; what was only proposed follows the model.
function propose(name, value) {
  if (!value || (field(name).value && field(name).value !== proposed[name])) return;
  field(name).value = value;
  proposed[name] = value;
}

function followModel() {
  const model = choices.models[field("model").value];
  if (model) {
    propose("dataset", String(model.dataset ?? ""));
    propose("name", `${model.name}-${choices.stamp}`);
  }
  typed.values = typed.errors = {}; // they were the other model's
  showParameters();
}

const ask = watchPreview(form, panel);
field("model").addEventListener("change", followModel);
form.addEventListener("input", showWords);
showParameters();
showWords();
ask();

// --- Weights from the computer: sent as soon as a file is chosen, then one more choice of what to start from ---

const GROUP = "The weights in a file that you uploaded";

const weights = document.getElementById("weights");
const file = document.getElementById("weights-file");
const box = new UploadBox(weights.querySelector(".upload"), weights, send);

async function send() {
  const [chosen] = file.files;
  if (!chosen || box.isBusy) return;
  const id = await box.send(chosen, await begunUpload(chosen));
  if (id === null) return;
  offer(field("start_from"), `upload-${id}`, chosen.name);
  box.box.hidden = true;
  file.value = "";
}

//: What of this file is on the server already, in part.
async function begunUpload({ name, size }) {
  const { results } = await fetchJson(weights.dataset.uploads);
  const isPart = (upload) => upload.name === name && upload.size_bytes === size && upload.offset < file.size;
  return results.find(isPart) ?? null;
}

function offer(select, value, name) {
  let group = [...select.querySelectorAll("optgroup")].find(({ label }) => label === GROUP);
  if (!group) {
    group = element("optgroup", { label: GROUP });
    select.options[0].after(group);
  }
  group.prepend(new Option(name, value));
  select.value = value;
  select.dispatchEvent(new Event("input", { bubbles: true }));
}

file.addEventListener("change", send);
form.addEventListener(
  "submit",
  (event) => {
    if (!box.isBusy) return;
    event.preventDefault();
    box.say("problem", "The weights are still being sent: start the training once they are here.");
  },
  { capture: true },
);
