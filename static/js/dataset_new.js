// The form of a new dataset: where its files are, folders of the server, and an upload that can be resumed.

import { readJson } from "./figure.js";
import { browseInto } from "./folders.js";
import { Sender } from "./upload.js";
import { bytes } from "./words.js";

const form = document.getElementById("dataset-form");
const file = form.elements.file;
const box = document.getElementById("upload");
const unfinished = document.getElementById("unfinished");
const token = form.elements.csrfmiddlewaretoken.value;
let sender = null;
let known = readJson("uploads");

function showSource() {
  const chosen = form.elements.source.value;
  for (const part of form.querySelectorAll("[data-source]")) part.hidden = part.dataset.source !== chosen;
}

function say(name, words) {
  box.querySelector(`[data-field="${name}"]`).textContent = words;
}

function showProgress({ sent, size, perSecond, words }) {
  box.querySelector("progress").value = size ? sent / size : 0;
  const left = perSecond > 0 ? `, about ${Math.ceil((size - sent) / perSecond)} s left` : "";
  const speed = perSecond > 0 ? `, ${bytes(perSecond)}/s${left}` : "";
  say("words", words || `${bytes(sent)} of ${bytes(size)} (${Math.floor((100 * sent) / size)} %)${speed}`);
}

//: An upload that is here in part goes on with the same file: browsers do not let a page open it again by itself.
function beginningOf(chosen) {
  return known.find((upload) => upload.name === chosen.name && upload.size_bytes === chosen.size) ?? null;
}

function finish(id) {
  form.elements.upload.value = id;
  file.disabled = true;
  form.requestSubmit();
}

//: Said before the server is asked: it would refuse the same.
function problemOf(chosen) {
  const suffixes = form.dataset.suffixes.split(",");
  if (!suffixes.some((suffix) => chosen.name.toLowerCase().endsWith(suffix))) return `A file of this kind is not taken: choose one of ${suffixes.join(", ")}.`;
  if (chosen.size === 0) return "The file is empty: choose another one.";
  if (chosen.size > Number(form.dataset.maxBytes)) return `The file has ${bytes(chosen.size)}, more than the server takes: put it into a folder on the server instead.`;
  return "";
}

async function send() {
  const chosen = file.files[0];
  const problem = problemOf(chosen);
  box.hidden = false;
  say("name", chosen.name);
  say("words", "");
  say("problem", problem);
  box.querySelector("[data-pause]").hidden = Boolean(problem);
  if (problem) return;
  sender = new Sender({ address: form.dataset.uploads, token, file: chosen, begun: beginningOf(chosen), onProgress: showProgress });
  try {
    const id = await sender.run();
    if (id !== null) finish(id);
  } catch (error) {
    say("words", "");
    say("problem", error.message);
  } finally {
    sender = null;
  }
}

function onSubmit(event) {
  const isUpload = form.elements.source.value === "upload";
  if (!isUpload || form.elements.upload.value || !file.files.length) return;
  event.preventDefault();
  if (!sender) send();
}

function togglePause(button) {
  if (!sender) {
    send();
  } else if (sender.isPaused) {
    sender.resume();
  } else {
    sender.pause();
  }
  button.textContent = sender?.isPaused ? "Go on" : "Pause";
}

async function giveUp(upload, item) {
  const response = await fetch(`${form.dataset.uploads}${upload.id}/`, { method: "DELETE", headers: { "X-CSRFToken": token } });
  if (!response.ok && response.status !== 404) return;
  known = known.filter((other) => other.id !== upload.id);
  if (form.elements.upload.value === String(upload.id)) form.elements.upload.value = "";
  item.remove();
  unfinished.hidden = known.length === 0;
}

function button(words, label, onClick) {
  const element = document.createElement("button");
  element.type = "button";
  element.className = "btn btn-sm";
  element.textContent = words;
  element.setAttribute("aria-label", label);
  element.addEventListener("click", onClick);
  return element;
}

function listUnfinished() {
  const list = unfinished.querySelector("ul");
  for (const upload of known) {
    const item = document.createElement("li");
    const words = document.createElement("span");
    const isWhole = upload.offset === upload.size_bytes;
    const part = Math.floor((100 * upload.offset) / upload.size_bytes);
    words.textContent = isWhole ? `${upload.name} is here.` : `${upload.name}: ${part} % is here. Choose the same file again to go on.`;
    item.append(words);
    if (isWhole) item.append(button("Use it", `Use ${upload.name}`, () => finish(upload.id)));
    item.append(button("Remove", `Remove ${upload.name}`, () => giveUp(upload, item)));
    list.append(item);
  }
  unfinished.hidden = known.length === 0;
}

form.addEventListener("change", (event) => {
  if (event.target.name === "source") showSource();
  if (event.target === file) form.elements.upload.value = "";
});
form.addEventListener("submit", onSubmit, { capture: true });
box.querySelector("[data-pause]").addEventListener("click", (event) => togglePause(event.currentTarget));
addEventListener("beforeunload", (event) => sender && !sender.isPaused && event.preventDefault());
for (const opener of form.querySelectorAll("[data-browse]")) {
  opener.addEventListener("click", () => browseInto(document.getElementById(opener.dataset.browse), opener.dataset.what, form.dataset.folders));
}
listUnfinished();
showSource();
