// Asks the server what a form would do as it is filled in now, and shows the answer. Everything is text, never markup.

import { setField } from "./fields.js";

const PAUSE_MS = 250;

function gpus(count) {
  return count === 1 ? "1 GPU" : `${count} GPUs`;
}

function gpusWords(seen) {
  if (!seen.target_slots) return seen.before_slots ? "for now" : "now";
  if (seen.before_slots === seen.target_slots) return "as without this";
  const from = seen.before_slots ? `instead of ${seen.before_slots}` : "";
  return seen.slots >= seen.target_slots ? from || "at once" : `${from}${from && ", "}once others have given ${seen.target_slots === 1 ? "it" : "them"} back`;
}

//: Errors appear beside the fields that were touched; all of them are summed up in the panel.
function showErrors(form, panel, errors, touched) {
  const list = panel.querySelector("[data-errors]");
  list.replaceChildren();
  for (const [name, sentences] of Object.entries(errors)) {
    const input = form.elements.namedItem(name);
    const label = input?.id ? form.querySelector(`label[for="${input.id}"]`) : null;
    for (const sentence of sentences) {
      const item = document.createElement("li");
      item.textContent = label ? `${label.firstChild.textContent.trim()}: ${sentence}` : sentence;
      list.append(item);
    }
  }
  list.hidden = !list.childElementCount;
  for (const name of touched) {
    const input = form.elements.namedItem(name);
    if (input?.id) showBeside(input, errors[name] ?? []);
  }
}

export function showBeside(input, sentences) {
  const field = input.closest(".field");
  let shown = document.getElementById(`${input.id}_error`);
  if (!shown && sentences.length) {
    shown = document.createElement("div");
    shown.className = "field-error";
    shown.id = `${input.id}_error`;
    (input.closest(".input-with-unit") ?? input).after(shown);
  }
  field?.classList.toggle("has-error", sentences.length > 0);
  if (shown) shown.textContent = sentences.join(" ");
  if (sentences.length) input.setAttribute("aria-invalid", "true");
  else input.removeAttribute("aria-invalid");
}

function showPreview(panel, seen) {
  setField(panel, "gpus", gpus(seen.target_slots));
  setField(panel, "gpus-words", gpusWords(seen));
  setField(panel, "why", (seen.then ?? seen.reason)?.text ?? "");
  setField(panel, "others", seen.others_text);
  setField(panel, "start", seen.start_text);
  setField(panel, "end", seen.end_text || "–");
}

function showNothing(panel, words) {
  setField(panel, "gpus", "–");
  setField(panel, "gpus-words", words);
  for (const name of ["others", "start", "end"]) setField(panel, name, "–");
  setField(panel, "why", "");
}

//: `panel` is around templates/jobs/train/_preview.html, or what `looks` fills. Returns a function that asks anew.
export function watchPreview(form, panel, looks = { show: showPreview, showNothing }) {
  const answer = panel.querySelector("[data-foreseen]");
  const address = form.getAttribute("data-preview"); // form.dataset may be a field of that name
  const touched = new Set();
  let timer = 0;
  let asking = null;

  async function ask() {
    asking?.abort();
    const mine = new AbortController();
    asking = mine;
    try {
      const response = await fetch(address, { method: "POST", body: new FormData(form), signal: mine.signal, headers: { Accept: "application/json" } });
      if (!response.ok) throw new Error(`status ${response.status}`);
      const { preview, errors } = await response.json();
      showErrors(form, panel, errors ?? {}, touched);
      if (preview) looks.show(panel, preview);
      else looks.showNothing(panel, "once everything fits");
    } catch {
      if (mine.signal.aborted) return;
      showErrors(form, panel, {}, touched);
      looks.showNothing(panel, "is unknown: the server did not answer. Nothing was lost; type on to ask again.");
    }
    answer.setAttribute("aria-busy", "false");
  }

  function soon(event) {
    if (event?.target?.name) touched.add(event.target.name);
    answer.setAttribute("aria-busy", "true");
    clearTimeout(timer);
    timer = setTimeout(ask, PAUSE_MS);
  }

  form.addEventListener("input", soon);
  return soon;
}
