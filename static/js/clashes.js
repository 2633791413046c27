// A form that somebody else has saved meanwhile: buttons that put the present value into a field. The form carries that
// value in a hidden input, as the one with which it was opened.

const OPENED_WITH = "before-";

function take(form, name) {
  const values = [...form.elements].filter((field) => field.name === OPENED_WITH + name).map(({ value }) => value);
  const fields = [...form.elements].filter((field) => field.name === name);
  for (const field of fields) {
    if (field.type === "checkbox" || field.type === "radio") field.checked = values.includes(field.value);
    else field.value = values[0] ?? "";
    for (const kind of ["input", "change"]) field.dispatchEvent(new Event(kind, { bubbles: true }));
  }
  return fields[0];
}

document.addEventListener("click", ({ target }) => {
  const button = target.closest("button[data-takes]");
  if (!button) return;
  const [field] = button.dataset.takes.split(" ").map((name) => take(button.form, name));
  const row = button.closest("[data-clash]");
  row.classList.add("is-settled");
  row.querySelector("[data-mine]").textContent = "Your entry is dropped.";
  button.remove();
  field?.focus();
});

//: Charts above take their room later, so the conflict is kept in view until the user moves.
function keepInView(clashes) {
  const observer = new ResizeObserver(() => clashes.scrollIntoView({ block: "center" }));
  observer.observe(document.getElementById("main"));
  for (const kind of ["wheel", "touchmove", "pointerdown", "keydown"]) addEventListener(kind, () => observer.disconnect(), { once: true });
}

const shown = document.getElementById("clashes");
if (shown) {
  shown.focus({ preventScroll: true });
  keepInView(shown);
}
