// Behind the sentence: its arithmetic, and what the scheduler would decide if something of the job were otherwise.

import { ask } from "../../ask.js";
import { whileBusy } from "../../busy.js";
import { element } from "../../dom.js";
import { refresh, refresher } from "../../fresh.js";
import { fetchJson } from "../../live.js";
import { gpus, gpusWords } from "../../preview.js";
import { say } from "../../toasts.js";

//: The question before a change, from the server's preview of it.
function questionOf(button, seen) {
  const why = (seen.then ?? seen.reason)?.text ?? "";
  const parts = [`This training: ${gpus(seen.target_slots)} ${gpusWords(seen)}.`, why, seen.others_text];
  return { title: `${button.textContent.trim()}?`, lost: parts.filter(Boolean).join(" "), yes: button.textContent.trim(), danger: false };
}

//: Previews the change of a remedy, and makes it as the form of the page would: the answer can be undone.
async function apply(form) {
  const button = form.querySelector("button");
  let answer;
  try {
    const options = { method: "POST", body: new FormData(form) };
    answer = await whileBusy(button, () => fetchJson(form.dataset.preview, options));
  } catch (error) {
    say(error.message || "The server did not answer: reload the page.", { kind: "error" });
    return;
  }
  const problems = Object.values(answer.errors ?? {}).flat();
  if (problems.length) say(problems.join(" "), { kind: "error" });
  else if (await ask(questionOf(button, answer.preview))) form.submit();
}

export function start() {
  const box = document.getElementById("why");
  const parts = document.getElementById("why-parts");
  const refreshSoon = refresher(parts);
  let shown = "";

  parts.addEventListener("submit", (event) => {
    event.preventDefault();
    apply(event.target);
  });
  parts.addEventListener("htmx:beforeRequest", (event) => {
    // While a question is open, its form stays.
    if (!box.open || document.querySelector("dialog.ask[open]")) event.preventDefault();
  });
  for (const trouble of ["htmx:sendError", "htmx:responseError"]) {
    parts.addEventListener(trouble, () => parts.replaceChildren(element("p", {}, "The server did not answer: close and reopen this section.")));
  }
  box.addEventListener("toggle", () => refresh(parts));
  return {
    showState(state) {
      const now = JSON.stringify([state.reason, state.state]);
      if (now !== shown) refreshSoon();
      shown = now;
    },
  };
}
