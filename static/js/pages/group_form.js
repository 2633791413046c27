// The form of an instance group: what a change would do, and the terms by the names of WMLA.

import { setField } from "../fields.js";
import { watchPreview } from "../preview.js";

const form = document.getElementById("group-form");
const panel = document.getElementById("preview");
const dialog = document.getElementById("configuration");

// --- What a change would do ----------------------------------------------------------------------------------------

function cell(text, className = "") {
  const fresh = document.createElement("td");
  fresh.className = className;
  fresh.textContent = text;
  return fresh;
}

function nameOf(effect) {
  const fresh = cell("");
  if (!effect.visible) {
    fresh.textContent = effect.name;
    return fresh;
  }
  const link = document.createElement("a");
  link.href = `/jobs/${effect.job}/`;
  link.textContent = effect.name;
  fresh.append(link);
  return fresh;
}

function list(place, sentences) {
  place.replaceChildren(
    ...sentences.map((sentence) => {
      const item = document.createElement("li");
      item.textContent = sentence;
      return item;
    }),
  );
}

function show(panel, seen) {
  setField(panel, "text", seen.changes.length ? seen.text : "Nothing is changed yet.");
  setField(panel, "more", seen.more ? `and ${seen.more} more trainings` : "");
  const changes = panel.querySelector("[data-changes]");
  changes.hidden = !seen.changes.length;
  list(changes.querySelector("ul"), seen.changes);
  list(panel.querySelector("[data-notes]"), seen.notes);
  const table = panel.querySelector(".effects");
  table.hidden = !seen.effects.length;
  table.tBodies[0].replaceChildren(
    ...seen.effects.map((effect) => {
      const row = document.createElement("tr");
      row.append(nameOf(effect), cell(effect.words), cell(effect.before_slots, "number"), cell(effect.after_slots, "number"));
      return row;
    }),
  );
}

function showNothing(panel, words) {
  setField(panel, "text", `What it would do ${words === "once everything fits" ? "is told once everything fits." : words}`);
  setField(panel, "more", "");
  panel.querySelector("[data-changes]").hidden = true;
  panel.querySelector(".effects").hidden = true;
  list(panel.querySelector("[data-notes]"), []);
}

const ask = panel ? watchPreview(form, panel, { show, showNothing }) : () => {};
ask();

// --- The names of WMLA ---------------------------------------------------------------------------------------------

const mirrors = [...dialog.querySelectorAll("[data-mirrors]")];

function fieldOf(mirror) {
  return form.elements.namedItem(mirror.dataset.mirrors);
}

function fillMirrors() {
  for (const mirror of mirrors) {
    mirror.value = fieldOf(mirror).value;
    mirror.disabled = fieldOf(mirror).disabled;
  }
}

dialog.addEventListener("input", (event) => {
  if (!event.target.dataset.mirrors) return;
  fieldOf(event.target).value = event.target.value;
});

document.getElementById("open-configuration").addEventListener("click", () => {
  fillMirrors();
  dialog.showModal();
  document.getElementById("configuration-search").focus();
});
for (const button of dialog.querySelectorAll("[data-close]")) button.addEventListener("click", () => dialog.close());
dialog.addEventListener("keydown", (event) => {
  // Enter in a field would send the whole form.
  if (event.key === "Enter" && event.target.matches("input")) event.preventDefault();
});

document.getElementById("configuration-search").addEventListener("input", (event) => {
  const wanted = event.target.value.trim().toLowerCase();
  let found = 0;
  for (const item of dialog.querySelectorAll("[data-search]")) {
    item.hidden = !item.dataset.search.toLowerCase().includes(wanted);
    found += !item.hidden;
  }
  document.getElementById("configuration-none").hidden = found > 0;
});

const take = document.getElementById("take-parameters");
take.addEventListener("click", async () => {
  const said = document.getElementById("taken-parameters");
  const pasted = form.elements.namedItem("parameters");
  try {
    const response = await fetch(take.dataset.address, { method: "POST", body: new FormData(form), headers: { Accept: "application/json" } });
    if (!response.ok) throw new Error(`status ${response.status}`);
    const answer = await response.json();
    if (answer.error) {
      list(said, [answer.error]);
      pasted.setAttribute("aria-invalid", "true");
      return;
    }
    pasted.removeAttribute("aria-invalid");
    for (const [name, value] of Object.entries(answer.terms)) form.elements.namedItem(name).value = value;
    fillMirrors();
    list(said, [...(Object.keys(answer.terms).length ? [`Taken over: ${Object.keys(answer.terms).length}.`] : []), ...answer.sentences]);
    pasted.value = "";
    ask();
  } catch {
    list(said, ["The server did not answer. Nothing was lost: try again."]);
  }
});
document.documentElement.dataset.ready = "yes";
