// Asks before something is lost. Two ways to the same dialog:
//
// - templates: {% include "_ask.html" with id=… title=… lost=… action=… yes=… %} and a button with data-opens="<id>";
// - scripts: `if (await ask({ title, lost, yes })) …`, for what is known only in the browser ("3 trainings").
//
// Both are a native <dialog>: the page behind is inert, Escape and the button that keeps everything close it, and the
// focus returns to where it was. The button that keeps has the focus first: Enter alone destroys nothing.

function text(tag, words, className = "") {
  const element = document.createElement(tag);
  element.textContent = words;
  if (className) element.className = className;
  return element;
}

function button(words, value, className) {
  const element = text("button", words, className);
  element.value = value;
  return element;
}

function dialogOf({ title, lost, hint = "", yes, keep = "Cancel", danger = true }) {
  const dialog = document.createElement("dialog");
  dialog.className = "ask";
  const heading = text("h2", title, "ask-title");
  heading.id = `ask-${crypto.randomUUID()}`;
  dialog.setAttribute("aria-labelledby", heading.id);
  const actions = document.createElement("form");
  actions.method = "dialog";
  actions.className = "ask-actions";
  const keeping = button(keep, "", "btn");
  keeping.autofocus = true;
  actions.append(keeping, button(yes, "yes", danger ? "btn btn-danger" : "btn btn-primary"));
  dialog.append(heading, text("p", lost));
  if (hint) dialog.append(text("p", hint, "hint"));
  dialog.append(actions);
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
