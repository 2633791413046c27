// Short sentences about what was just done, with "Undo" where it can be undone. Screen readers hear them; they stay
// long enough to be read, longer while the pointer or the focus is on them, and mistakes stay until they are closed.

import { element } from "./dom.js";

const SHOWN_MS = 8_000;
const UNDO_MS = 20_000;

function closeLater(toast, milliseconds) {
  let timer = null;
  const start = () => (timer = setTimeout(() => toast.remove(), milliseconds));
  const stop = () => clearTimeout(timer);
  for (const name of ["pointerenter", "focusin"]) toast.addEventListener(name, stop);
  for (const name of ["pointerleave", "focusout"]) toast.addEventListener(name, start);
  start();
}

async function runUndo(toast, undo) {
  toast.remove();
  try {
    say((await undo()) || "Undone.");
  } catch (error) {
    say(`The change could not be undone: ${error.message}`, { kind: "error" });
  }
}

//: `kind` is "success" or "error"; `undo` is called when the person takes it back, and may return what to say then.
export function say(sentence, { kind = "success", undo = null } = {}) {
  const toast = element("div", { className: `toast-line toast-${kind}` }, element("span", {}, sentence));
  if (undo) toast.append(element("button", { type: "button", className: "btn btn-sm", click: () => runUndo(toast, undo) }, "Undo"));
  toast.append(element("button", { type: "button", className: "btn-close", "aria-label": "Close this message", click: () => toast.remove() }));
  document.getElementById("toasts").append(toast);
  if (kind !== "error") closeLater(toast, undo ? UNDO_MS : SHOWN_MS);
  return toast;
}
