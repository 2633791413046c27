// A button that was pressed turns while its work is under way, cannot be pressed twice, and comes back.

//: The button turns until the promise is settled; answers what the promise does. A second press meanwhile does nothing.
export async function whileBusy(button, work) {
  if (isBusy(button)) return undefined;
  setBusy(button, true);
  try {
    return await work();
  } finally {
    setBusy(button, false);
  }
}

//: Not `disabled`: that would move the focus away, and drop the button's own value from the form.
function setBusy(button, on) {
  button.classList.toggle("is-busy", on);
  if (on) button.setAttribute("aria-disabled", "true");
  else button.removeAttribute("aria-disabled");
}

function isBusy(button) {
  return button.classList.contains("is-busy");
}

function buttonsOf(form) {
  return [...form.elements].filter((element) => element.type === "submit");
}

//: Forms that post: the page that answers replaces this one. Scripts that send a form themselves use `whileBusy`.
function onSubmit(event) {
  const form = event.target;
  if (event.defaultPrevented || form.method !== "post") return;
  if (buttonsOf(form).some(isBusy)) {
    event.preventDefault();
    return;
  }
  const pressed = event.submitter ?? buttonsOf(form)[0];
  if (pressed) setBusy(pressed, true);
  form.setAttribute("aria-busy", "true");
}

//: Whether the answer to a form is about to replace this page.
export function isLeaving() {
  return document.querySelector("form[aria-busy]") !== null;
}

//: Back in the history: the browser shows the page as it was left.
function onPageShow() {
  for (const form of document.querySelectorAll("form[aria-busy]")) {
    form.removeAttribute("aria-busy");
    for (const button of buttonsOf(form)) setBusy(button, false);
  }
}

addEventListener("submit", onSubmit);
addEventListener("pageshow", onPageShow);
