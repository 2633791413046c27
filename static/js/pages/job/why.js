// Behind the sentence: its arithmetic, and what the scheduler would decide if something of the job were otherwise.

import { fetchJson } from "../../live.js";
import { say } from "../../toasts.js";
import { element, link } from "./rows.js";

const SETTLE_MS = 500;
const VERBS = { min_slots: "Lower the minimum", max_slots: "Raise the maximum", priority: "Raise the priority" };

export function start(page, root) {
  const box = document.getElementById("why");
  const address = `/api/v1/jobs/${page.job}/`;
  let shown = "";
  let timer = null;
  //: Grows when a change begins and when it ends: an answer from before would show again what was just changed.
  let turn = 0;
  let isChanging = false;

  async function read() {
    if (!box.open || isChanging) return;
    const asked = turn;
    try {
      const why = await fetchJson(`${address}why/`);
      if (turn !== asked) return;
      showTerms(why.terms);
      showRemedies(why.remedies, change);
    } catch {
      document.getElementById("why-remedies").replaceChildren(element("li", "", "There was no answer: close this and open it again."));
    }
  }

  async function change(remedy, button) {
    if (isChanging) return;
    isChanging = true;
    turn += 1;
    button.setAttribute("aria-disabled", "true");
    const problem = await problemOf(remedy);
    isChanging = false;
    turn += 1;
    if (problem) {
      button.removeAttribute("aria-disabled");
      say(problem, { kind: "error" });
      return;
    }
    say("Done: the scheduler decides again.");
    box.querySelector("summary").focus();
    read();
  }

  //: Asks for the change; why it was refused, in words, or nothing.
  async function problemOf(remedy) {
    const token = root.querySelector("[name=csrfmiddlewaretoken]").value;
    try {
      const response = await fetch(address, {
        method: "PATCH",
        headers: { "Content-Type": "application/json", "X-CSRFToken": token },
        body: JSON.stringify({ [remedy.kind]: remedy.value }),
      });
      return response.ok ? "" : (await response.json()).error;
    } catch {
      return "There was no answer: load the page again.";
    }
  }

  box.addEventListener("toggle", read);
  return {
    showState(state) {
      const now = JSON.stringify([state.reason, state.state]);
      if (now === shown) return;
      shown = now;
      clearTimeout(timer);
      timer = setTimeout(read, SETTLE_MS);
    },
  };
}

function showTerms(terms) {
  const rows = terms.map(({ name, value, job }) => {
    const row = element("div");
    const term = element("dt", "", job ? "" : name);
    if (job) term.append(link(`/jobs/${job}/`, name));
    row.append(term, element("dd", "", value));
    return row;
  });
  const list = document.getElementById("why-terms");
  list.hidden = rows.length === 0;
  list.replaceChildren(...rows);
  document.getElementById("why-undecided").hidden = rows.length > 0;
}

function showRemedies(remedies, change) {
  const rows = remedies.map((remedy) => {
    const row = element("li", "", `${remedy.text} `);
    if (VERBS[remedy.kind]) {
      const button = element("button", "btn btn-sm", VERBS[remedy.kind]);
      button.type = "button";
      button.addEventListener("click", () => change(remedy, button));
      row.append(button);
    } else if (remedy.value !== null) {
      row.append(link(`/jobs/${remedy.value}/`, "Look at it"));
    }
    return row;
  });
  document.getElementById("why-remedies").replaceChildren(...rows);
  if (!rows.length)
    document
      .getElementById("why-remedies")
      .append(element("li", "", "Nothing that you could change: it has what it asks for, or waits for what is under way."));
}
