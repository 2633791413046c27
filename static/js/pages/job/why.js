// Behind the sentence: its arithmetic, and what the scheduler would decide if something of the job were otherwise.

import { whileBusy } from "../../busy.js";
import { element } from "../../dom.js";
import { refresh, refresher } from "../../fresh.js";
import { say } from "../../toasts.js";

export function start(page, root) {
  const box = document.getElementById("why");
  const parts = document.getElementById("why-parts");
  const refreshSoon = refresher(parts);
  let shown = "";
  //: Grows when a change begins and when it ends: an answer from before would show again what was just changed.
  let turn = 0;
  let isChanging = false;

  async function change(button) {
    if (isChanging) return;
    isChanging = true;
    turn += 1;
    const problem = await whileBusy(button, () => problemOf(button.dataset));
    isChanging = false;
    turn += 1;
    if (problem) {
      say(problem, { kind: "error" });
      return;
    }
    say("The change was made. The scheduler applies it at once.");
    box.querySelector("summary").focus();
    refresh(parts);
  }

  //: Asks for the change; why it was refused, in words, or nothing.
  async function problemOf({ remedy, value }) {
    const token = root.querySelector("[name=csrfmiddlewaretoken]").value;
    try {
      const response = await fetch(`/api/v1/jobs/${page.job}/`, {
        method: "PATCH",
        headers: { "Content-Type": "application/json", "X-CSRFToken": token },
        body: JSON.stringify({ [remedy]: Number(value) }),
      });
      return response.ok ? "" : (await response.json()).error;
    } catch {
      return "The server did not answer: reload the page.";
    }
  }

  parts.addEventListener("click", ({ target }) => target.dataset.remedy && change(target));
  parts.addEventListener("htmx:beforeRequest", (event) => {
    if (isChanging || !box.open) event.preventDefault();
    event.detail.xhr.turn = turn;
  });
  parts.addEventListener("htmx:beforeSwap", ({ detail }) => {
    if (detail.xhr.turn !== turn) detail.shouldSwap = false;
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
