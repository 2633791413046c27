// Asks the server what a form would do as it is filled in now, and shows the answer.

import { element, setField, showList } from "./dom.js";
import { fetchJson, Refused } from "./live.js";

const PAUSE_MS = 250;
const NO_ANSWER = "not available: the server did not answer. Your entries are kept; continue typing to retry.";

export function gpus(count) {
  return count === 1 ? "1 GPU" : `${count} GPUs`;
}

export function gpusWords(seen) {
  if (!seen.target_slots) return seen.before_slots ? "for now" : "now";
  if (seen.before_slots === seen.target_slots) return "unchanged";
  const from = seen.before_slots ? `instead of ${seen.before_slots}` : "";
  return seen.slots >= seen.target_slots ? from || "at once" : `${from}${from && ", "}when others release ${seen.target_slots === 1 ? "it" : "them"}`;
}

function labelOf(form, name) {
  const input = form.elements.namedItem(name);
  return (input?.id && form.querySelector(`label[for="${input.id}"]`)?.firstChild.textContent.trim()) || "";
}

//: Errors appear beside the fields that were touched; all but those of fields to be filled in, `left`, are summed up in
//: the panel. Parts with data-when-invalid appear once the field of that name has an error.
function showErrors(form, panel, errors, touched, left = []) {
  const list = panel.querySelector("[data-errors]");
  const lines = Object.entries(errors).flatMap(([name, sentences]) => {
    if (left.includes(name)) return [];
    const label = labelOf(form, name);
    return sentences.map((sentence) => (label ? `${label}: ${sentence}` : sentence));
  });
  if (list) {
    showList(list, lines);
    list.hidden = !lines.length;
  }
  for (const part of form.querySelectorAll("[data-when-invalid]")) if (errors[part.dataset.whenInvalid]) part.hidden = false;
  for (const name of touched) {
    const input = form.elements.namedItem(name);
    if (input?.id) showBeside(input, errors[name] ?? []);
  }
}

export function showBeside(input, sentences) {
  const field = input.closest(".field");
  let shown = document.getElementById(`${input.id}_error`);
  if (!shown && sentences.length) {
    shown = element("div", { className: "field-error", id: `${input.id}_error` });
    (input.closest(".input-with-unit") ?? input).after(shown);
  }
  field?.classList.toggle("has-error", sentences.length > 0);
  if (shown) shown.textContent = sentences.join(" ");
  if (sentences.length) input.setAttribute("aria-invalid", "true");
  else input.removeAttribute("aria-invalid");
}

export function showPreview(panel, seen) {
  setField(panel, "gpus", gpus(seen.target_slots));
  setField(panel, "gpus-words", gpusWords(seen));
  setField(panel, "why", (seen.then ?? seen.reason)?.text ?? "");
  setField(panel, "processes", seen.processes_text);
  setField(panel, "others", seen.others_text);
  setField(panel, "missing", seen.missing_text);
  setField(panel, "skipped", seen.skipped_text);
  setField(panel, "environment", seen.environment_text);
  setField(panel, "start", seen.start_text);
  setField(panel, "end", seen.end_text || "–");
}

//: What is to be entered before anything can be foreseen: "Choose a model to see what will happen."
function whenItIsTold(form, missing) {
  if (!missing.length) return "Correct the entries to see what will happen.";
  const deeds = missing.map((name) => {
    const label = labelOf(form, name).toLowerCase();
    if (form.elements.namedItem(name).tagName !== "SELECT") return `enter the ${label}`;
    return `choose ${/^[aeiou]/.test(label) ? "an" : "a"} ${label}`;
  });
  const words = deeds.join(" and ");
  return `${words.charAt(0).toUpperCase()}${words.slice(1)} to see what will happen.`;
}

export function showNothing(panel, words) {
  setField(panel, "gpus", "–");
  setField(panel, "gpus-words", words);
  for (const name of ["others", "start", "end"]) setField(panel, name, "–");
  setField(panel, "why", "");
}

//: `panel` is around templates/jobs/train/_preview.html, or what `looks` fills. Returns a function that asks anew, with
//: more values than those of the form.
export function watchPreview(form, panel, looks = { show: showPreview, showNothing }) {
  const place = panel.querySelector("[data-foreseen]") ?? panel;
  const address = form.getAttribute("data-preview"); // form.dataset may be a field of that name
  const touched = new Set();
  let timer = 0;
  let asking = null;

  async function ask(more = {}) {
    clearTimeout(timer);
    asking?.abort();
    const mine = new AbortController();
    asking = mine;
    const body = new FormData(form);
    for (const [name, value] of Object.entries(more)) body.set(name, value);
    try {
      const answer = await fetchJson(address, { method: "POST", body, signal: mine.signal });
      const left = (answer.awaited ?? []).filter((name) => labelOf(form, name) && !touched.has(name));
      showErrors(form, panel, answer.errors ?? {}, touched, left);
      if (answer.preview) looks.show(panel, answer.preview, answer);
      else looks.showNothing(panel, whenItIsTold(form, left));
    } catch (error) {
      if (mine.signal.aborted) return;
      showErrors(form, panel, {}, touched);
      looks.showNothing(panel, error instanceof Refused && error.message ? error.message : NO_ANSWER);
    }
    place.setAttribute("aria-busy", "false");
  }

  form.addEventListener("input", ({ target }) => {
    if (target.name) touched.add(target.name);
    place.setAttribute("aria-busy", "true");
    asking?.abort(); // the running request is about a form that has changed since
    clearTimeout(timer);
    timer = setTimeout(ask, PAUSE_MS);
  });
  return ask;
}
