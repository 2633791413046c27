// Start a training: picking a model fills in its usual dataset and asks for its parameters, and the panel beside says
// what will happen.

import { element, setField } from "../dom.js";
import "../folders.js";
import { readJson } from "../figure.js";
import { fetchJson } from "../live.js";
import { showBeside, showNothing, showPreview, watchPreview } from "../preview.js";
import { packed } from "../tar.js";
import { UploadBox } from "../upload.js";
import { sizeWords } from "../words.js";

const choices = readJson("train-choices");
const typed = readJson("typed-parameters");
const form = document.querySelector("form.form-page");
const panel = document.getElementById("preview");
const declared = document.getElementById("declared");
const field = (name) => form.elements.namedItem(name);
const growing = document.getElementById("id_max_slots_helptext").textContent;
const proposed = { dataset: field("dataset").value, name: choices.proposed_name, max_slots: field("max_slots").value };
//: Number of parameter fields that are visible at once; the others are folded.
const SHOWN = 8;

function wholeNumber(name) {
  const value = Number(field(name).value);
  return Number.isInteger(value) && value > 0 ? value : null;
}

function sharingSentence(model, group) {
  if (model && model.engine !== "elastic") return `${group.sharing} ${group.stopping[model.continues]}`;
  const giving = group.takes_gpus
    ? "When others need GPUs, the training releases some after its current step and continues on the rest; nothing is lost."
    : "The training keeps its GPUs.";
  return `${group.sharing} ${giving}`;
}

function sumSentence(layers) {
  if (!layers.length)
    return "Results equal those of one GPU except for rounding: the code shows neither dropout nor BatchNorm nor losses that compare the samples of a batch, whose results would depend on the number of GPUs, as in any data-parallel training.";
  return `The code has ${layers.join(", ")}, whose results depend on the number of GPUs, as in any data-parallel training: after a resize its curves may differ from those of an undisturbed run by more than rounding. Exactness bitwise prevents that, but a step takes about 1.1 to 1.7 times as long.`;
}

function exactnessSentence(model) {
  if (model?.engine !== "elastic") return "";
  if (field("exactness").value === "sum") return sumSentence(model.layers);
  const parts = wholeNumber("virtual_ranks") ?? 2 ** Math.ceil(Math.log2(wholeNumber("max_slots") ?? 1));
  return `Weights, optimizer and BatchNorm statistics keep the same bits through any resize or failure: each step is computed in ${parts} parts, summed in a fixed order. This costs speed, most on few GPUs with many parts.`;
}

//: Whether the training has one GPU: one process, of which nothing says that it uses more.
function isOnOneGpu(model) {
  return model?.engine === "single" && !model.uses_several_gpus && field("gpus_per_process").value === "script";
}

function showEngine(isElastic, isOnOne) {
  form.querySelector("[data-sized]").hidden = isOnOne;
  form.querySelector("[data-plain]").hidden = isElastic;
  for (const part of form.querySelectorAll("[data-elastic]")) part.hidden = !isElastic;
  form.querySelector("[data-bitwise]").hidden = !isElastic || field("exactness").value !== "bitwise";
  form.querySelector('label[for="id_max_slots"]').textContent = isElastic ? "At most" : "Exactly";
  document.getElementById("id_max_slots_helptext").textContent = isElastic ? growing : "The training starts once all of these GPUs are free.";
}

function showWords() {
  const model = choices.models[field("model").value];
  const isElastic = !model || model.engine === "elastic";
  if (!isElastic)
    field("exactness").value = "sum"; // the script itself decides how it adds up
  else field("gpus_per_process").value = "script"; // the session decides
  const group = choices.groups[field("instance_group").value];
  setField(panel, "sharing", group ? sharingSentence(model, group) : "");
  setField(panel, "exactness", exactnessSentence(model));
  setField(panel, "description", model?.description ? `${model.name}: ${model.description}` : "");
  showEngine(isElastic, isOnOneGpu(model));
}

function parameterField({ name, kind, value, usual, choices: offered, help }, number) {
  const part = document.getElementById("declared-field").content.firstElementChild.cloneNode(true);
  const [label, input, select, hint] = part.children;
  (offered.length ? input : select).remove();
  const control = offered.length ? select : input;
  if (kind === "choice") select.append(new Option(usual ? `${usual} (default)` : "Default of the script", ""));
  select.append(...offered.map((choice) => new Option(choice)));
  if (kind === "number") input.inputMode = "decimal";
  input.placeholder = usual;
  Object.assign(control, { name: `parameter.${name}`, id: `parameter-${number}`, value: typed.values[name] ?? value });
  label.htmlFor = control.id;
  label.textContent = name;
  if (help) {
    Object.assign(hint, { id: `${control.id}-hint`, textContent: help });
    control.setAttribute("aria-describedby", hint.id);
  } else hint.remove();
  if (typed.errors[name]) requestAnimationFrame(() => showBeside(control, [typed.errors[name]]));
  return part;
}

function showParameters() {
  const model = choices.models[field("model").value];
  const wanted = model?.parameters ?? [];
  declared.hidden = !wanted.length;
  setField(declared, "model", model?.name ?? "");
  const parts = wanted.map(parameterField);
  const rest = parts.splice(SHOWN);
  const more = declared.querySelector("details");
  declared.querySelector(".declared-fields").replaceChildren(...parts);
  more.querySelector(".declared-fields").replaceChildren(...rest);
  more.querySelector("summary").textContent = `${rest.length} more`;
  more.hidden = !rest.length;
  more.open = wanted.slice(SHOWN).some(({ name, value }) => typed.errors[name] || (typed.values[name] ?? value) !== value);
}

//: Sets a proposed value; a value that the user picked stays.
function propose(name, value) {
  if (field(name).value === value || (field(name).value && field(name).value !== proposed[name])) return;
  field(name).value = value;
  proposed[name] = value;
}

function followModel() {
  const model = choices.models[field("model").value];
  if (model) {
    if (model.dataset || !model.reads_data) propose("dataset", String(model.dataset ?? ""));
    propose("name", `${model.name}-${choices.stamp}`);
    propose("max_slots", String(model.processes ?? Math.max(1, choices.groups[field("instance_group").value]?.capacity ?? 1)));
  }
  typed.values = typed.errors = {}; // they were the other model's
  showParameters();
}

//: Fields of a sweep appear with the first parameter that has several values.
function showSweep(panel, seen) {
  showPreview(panel, seen);
  setField(panel, "sweep", seen.sweep_text);
  form.querySelector("[data-sweep]").hidden = !seen.sweep_text;
}

const ask = watchPreview(form, panel, { show: showSweep, showNothing });
field("model").addEventListener("change", followModel);
form.addEventListener("input", showWords);
showParameters();
showWords();
ask();

// --- A script, a folder or an archive of the user's: a model as soon as it is dropped, and the one that is picked ----

const code = document.getElementById("code");

function say(sentence, problem = "") {
  setField(code, "said", sentence);
  setField(code, "problem", problem);
  code.querySelector("[data-which]").hidden = true;
}

function take(answer) {
  const key = String(answer.model);
  choices.models[key] = answer;
  const select = field("model");
  if (![...select.options].some(({ value }) => value === key)) select.append(new Option(answer.name, key));
  select.value = key;
  select.dispatchEvent(new Event("change", { bubbles: true }));
  select.dispatchEvent(new Event("input", { bubbles: true }));
  say(answer.sentence);
}

function askWhich(scripts, values) {
  const entry = document.getElementById("code-entry");
  const which = code.querySelector("[data-which]");
  entry.replaceChildren(new Option("Choose the script", ""), ...scripts.map((name) => new Option(name)));
  entry.onchange = () => entry.value && sendCode({ ...values, entry_point: entry.value });
  which.hidden = false;
  entry.focus();
}

async function sendCode(values) {
  const body = new FormData();
  for (const [name, value] of Object.entries(values)) body.set(name, ...[value].flat());
  body.set("csrfmiddlewaretoken", form.elements.csrfmiddlewaretoken.value);
  say("Sending …");
  try {
    const response = await fetch(code.dataset.address, { method: "POST", body, headers: { Accept: "application/json" } });
    const answer = await response.json();
    if (!response.ok) return say("", answer.error);
    if (!answer.scripts) return take(answer);
    say("");
    askWhich(answer.scripts, values);
  } catch {
    say("", "The server did not answer: drop the code again.");
  }
}

//: A folder or a script of the server.
function sendPath(path) {
  document.getElementById("code-path").value = path;
  sendCode({ path });
}

//: One file as it is, several packed into one. `files`: [path, File], with null for an empty folder.
async function sendFiles(files, name) {
  if (!files.length) return say("", "The folder contains no files: drop a script, or a folder with a script.");
  const size = files.reduce((sum, [, file]) => sum + (file?.size ?? 0), 0);
  if (size > Number(code.dataset.maxBytes)) return say("", `The code has ${sizeWords(size)}, which is too large: remove data.`);
  const single = files.length === 1 && !files[0][0].includes("/");
  try {
    await sendCode({ file: single ? files[0][1] : [await packed(files), `${name}.tar`] });
  } catch (error) {
    say("", error.message);
  }
}

//: Folders and files that no training needs: versions, environments, caches.
const LEFT_OUT = new Set([".git", ".venv", "venv", "__pycache__", "node_modules", ".ipynb_checkpoints", ".DS_Store"]);

async function filesBelow(entry, path) {
  if (LEFT_OUT.has(entry.name)) return [];
  if (entry.isFile) return [[path, await new Promise((resolve, reject) => entry.file(resolve, reject))]];
  const reader = entry.createReader();
  const found = [];
  let isEmpty = true;
  for (;;) {
    const entries = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!entries.length) return found.length || !isEmpty ? found : [[path, null]];
    isEmpty = false;
    for (const each of entries) found.push(...(await filesBelow(each, `${path}/${each.name}`)));
  }
}

async function onDrop(event) {
  event.preventDefault();
  code.classList.remove("is-over");
  const text = event.dataTransfer.getData("text/plain").trim();
  // Before anything is waited for: the list is empty afterwards.
  const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry()).filter(Boolean);
  const plain = entries.length ? [] : [...event.dataTransfer.files].map((file) => [file.name, file]);
  if (!entries.length && !plain.length && text) return sendPath(text);
  const files = [...plain, ...(await Promise.all(entries.map((entry) => filesBelow(entry, entry.name)))).flat()];
  await sendFiles(files, entries.length === 1 ? entries[0].name : "scripts");
}

function onFolder({ target }) {
  const files = [...target.files].map((file) => [file.webkitRelativePath, file]);
  const kept = files.filter(([path]) => !path.split("/").some((part) => LEFT_OUT.has(part)));
  sendFiles(kept, files[0]?.[0].split("/")[0] ?? "");
  target.value = "";
}

if (code) {
  for (const name of ["dragenter", "dragover"])
    code.addEventListener(name, (event) => {
      event.preventDefault();
      code.classList.add("is-over");
    });
  code.addEventListener("dragleave", () => code.classList.remove("is-over"));
  code.addEventListener("drop", onDrop);
  document.getElementById("code-folder").addEventListener("change", onFolder);
  document.getElementById("code-file").addEventListener("change", ({ target }) => {
    if (target.files[0]) sendFiles([[target.files[0].name, target.files[0]]], "");
    target.value = "";
  });
  const path = document.getElementById("code-path");
  let entered = "";
  path.addEventListener("change", () => {
    const typed = path.value.trim();
    if (typed && typed !== entered) sendPath(typed);
    entered = "";
  });
  path.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault(); // the path is sent now, and not once more when the field is left
    entered = path.value.trim();
    if (entered) sendPath(entered);
  });
}

// --- Weights from the computer: sent as soon as a file is chosen, then one more choice of what to start from ---

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

//: Upload of this file that has begun earlier and is on the server in part.
async function begunUpload({ name, size }) {
  const { results } = await fetchJson(weights.dataset.uploads);
  const isPart = (upload) => upload.name === name && upload.size_bytes === size && upload.offset < file.size;
  return results.find(isPart) ?? null;
}

function offer(select, value, name) {
  let group = [...select.querySelectorAll("optgroup")].find(({ label }) => label === weights.dataset.group);
  if (!group) {
    group = element("optgroup", { label: weights.dataset.group });
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
    box.say("problem", "The weights are still being uploaded: start the training afterwards.");
  },
  { capture: true },
);
