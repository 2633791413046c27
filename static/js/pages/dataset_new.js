// The form of a new dataset: where its files are, folders of the server, and an upload that can be resumed.

import { element } from "../dom.js";
import { readJson } from "../figure.js";
import "../folders.js";
import { UploadBox } from "../upload.js";

const form = document.getElementById("dataset-form");
const file = form.elements.file;
const unfinished = document.getElementById("unfinished");
const box = new UploadBox(document.getElementById("upload"), form, send);
let known = readJson("uploads");

function showSource() {
  const chosen = form.elements.source.value;
  for (const part of form.querySelectorAll("[data-source]")) part.hidden = part.dataset.source !== chosen;
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

async function send() {
  const chosen = file.files[0];
  const id = await box.send(chosen, beginningOf(chosen));
  if (id !== null) finish(id);
}

function onSubmit(event) {
  const isUpload = form.elements.source.value === "upload";
  if (!isUpload || form.elements.upload.value || !file.files.length) return;
  event.preventDefault();
  if (!box.isBusy) send();
}

async function giveUp(upload, item) {
  const response = await fetch(`${form.dataset.uploads}${upload.id}/`, { method: "DELETE", headers: { "X-CSRFToken": box.token } });
  if (!response.ok && response.status !== 404) return;
  known = known.filter((other) => other.id !== upload.id);
  if (form.elements.upload.value === String(upload.id)) form.elements.upload.value = "";
  item.remove();
  unfinished.hidden = known.length === 0;
}

function button(words, label, click) {
  return element("button", { type: "button", className: "btn btn-sm", "aria-label": label, click }, words);
}

function unfinishedItem(upload) {
  const isWhole = upload.offset === upload.size_bytes;
  const part = Math.floor((100 * upload.offset) / upload.size_bytes);
  const words = isWhole ? `${upload.name} is uploaded.` : `${upload.name}: ${part} % is uploaded. Choose the same file again to continue.`;
  const item = element("li", {}, element("span", {}, words));
  if (isWhole) item.append(button("Use it", `Use ${upload.name}`, () => finish(upload.id)));
  item.append(button("Remove", `Remove ${upload.name}`, () => giveUp(upload, item)));
  return item;
}

form.addEventListener("change", (event) => {
  if (event.target.name === "source") showSource();
  if (event.target === file) form.elements.upload.value = "";
});
form.addEventListener("submit", onSubmit, { capture: true });
unfinished.querySelector("ul").append(...known.map(unfinishedItem));
unfinished.hidden = known.length === 0;
showSource();
