// The change of a job's priority and GPUs: says what it would do before it is saved.

import { watchPreview } from "../preview.js";

const form = document.querySelector("form.change-form");
if (form) {
  const panel = form.querySelector("[data-when-changed]");
  const before = new FormData(form);
  watchPreview(form, panel);
  form.addEventListener("input", () => {
    panel.hidden = ["priority", "max_slots"].every((name) => form.elements.namedItem(name).value === before.get(name));
  });
}
