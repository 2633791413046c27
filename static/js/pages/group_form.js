// The form of an instance group: what a change would do, and the terms by the names of WMLA.

import { startPickers } from "../accounts.js";
import { element, showList } from "../dom.js";
import { fetchJson } from "../live.js";
import { watchPreview } from "../preview.js";

const form = document.getElementById("group-form");
const panel = document.getElementById("preview");
const dialog = document.getElementById("configuration");

startPickers();

const looks = {
  show(_, html) {
    panel.querySelector("[data-effects]").innerHTML = html; // rendered by the server, escaped
  },
  showNothing(_, words) {
    const text = `The preview is ${words.replace(/\.?$/, ".")}`;
    panel.querySelector("[data-effects]").replaceChildren(element("p", { className: "sentence" }, text));
  },
};
const ask = panel ? watchPreview(form, panel, looks) : () => {};
ask();

//: Term -> the only policy under which it has an effect.
const ONLY_UNDER = { aim: "goodput", gpu_weights: "fairshare" };

function showTerms() {
  const policy = form.elements.namedItem("policy").value;
  for (const [name, own] of Object.entries(ONLY_UNDER)) {
    form.elements.namedItem(name).closest(".field").hidden = policy !== own;
  }
}
form.addEventListener("input", showTerms);
showTerms();

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
  showTerms();
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
    const answer = await fetchJson(take.dataset.address, { method: "POST", body: new FormData(form) });
    if (answer.error) {
      showList(said, [answer.error]);
      pasted.setAttribute("aria-invalid", "true");
      return;
    }
    pasted.removeAttribute("aria-invalid");
    for (const [name, value] of Object.entries(answer.terms)) form.elements.namedItem(name).value = value;
    fillMirrors();
    showTerms();
    showList(said, [...(Object.keys(answer.terms).length ? [`Fields filled in: ${Object.keys(answer.terms).length}.`] : []), ...answer.sentences]);
    pasted.value = "";
    ask();
  } catch {
    showList(said, ["The server did not answer. Nothing was changed: try again."]);
  }
});
document.documentElement.dataset.ready = "yes";
