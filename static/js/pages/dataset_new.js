// The form of a new dataset: where its files are, folders of the server, and an upload.

import "../folders.js";
import { watchUploadField } from "../upload_field.js";

const form = document.getElementById("dataset-form");

function showSource() {
  const chosen = form.elements.source.value;
  for (const part of form.querySelectorAll("[data-source]")) part.hidden = part.dataset.source !== chosen;
}

form.addEventListener("change", ({ target }) => target.name === "source" && showSource());
watchUploadField(form, () => form.elements.source.value === "upload");
showSource();
