// Asks before something is lost. Two ways to the same dialog:
//
// - templates: {% ask id=… title=… action=… yes=… %}<p>…</p>{% endask %} and a button with data-opens="<id>";
// - scripts: `if (await ask({ title, lost, yes })) …`, for what is known only in the browser ("3 trainings").
//
// Both are a native <dialog>: the page behind is inert, Escape and the button that keeps everything close it, and the
// focus returns to where it was. The button that keeps has the focus first: Enter alone destroys nothing.

import { element } from "./dom.js";

function dialogOf({ title, lost, hint = "", yes, keep = "Cancel", danger = true }) {
  const keeping = element("button", { className: "btn", autofocus: true }, keep);
  const agreeing = element("button", { className: danger ? "btn btn-danger" : "btn btn-primary", value: "yes" }, yes);
  const dialog = element("dialog", { className: "ask", "aria-label": title }, element("h2", { className: "ask-title" }, title), element("p", {}, lost));
  if (hint) dialog.append(element("p", { className: "hint" }, hint));
  dialog.append(element("form", { method: "dialog", className: "ask-actions" }, keeping, agreeing));
  return dialog;
}

//: Resolves to true if the person agreed. `lost` says what is lost in one sentence, `yes` is a verb with its object.
export function ask(question) {
  const dialog = dialogOf(question);
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes");
      dialog.remove();
    });
  });
}

document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-opens]");
  if (opener) document.getElementById(opener.dataset.opens).showModal();
});
