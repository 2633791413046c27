// The file of a form (templates/_upload_field.html): sent in pieces before the form is. The form then names the upload by its number,
// which a refused form or a log-in that ran out does not lose.

import { element } from "./dom.js";
import { readJson } from "./figure.js";
import { UploadBox } from "./upload.js";

//: `isUsed` says whether the form is about a file at all.
export function watchUploadField(form, isUsed = () => true) {
  const { file, upload } = form.elements;
  const unfinished = document.getElementById("unfinished");
  const box = new UploadBox(document.getElementById("upload"), form, send);
  let known = readJson("uploads");

  function choose(id) {
    upload.value = id;
    upload.dispatchEvent(new Event("change", { bubbles: true }));
  }

  //: An upload that is here in part goes on with the same file: browsers do not let a page open it again by itself.
  function beginningOf({ name, size }) {
    return known.find((begun) => begun.name === name && begun.size_bytes === size) ?? null;
  }

  async function send() {
    const [chosen] = file.files;
    const id = await box.send(chosen, beginningOf(chosen));
    if (id === null) return;
    choose(id);
    file.disabled = true;
    form.requestSubmit();
  }

  function onSubmit(event) {
    if (!isUsed() || upload.value || !file.files.length) return;
    event.preventDefault();
    if (!box.isBusy) send();
  }

  async function giveUp(begun) {
    const response = await fetch(`${form.dataset.uploads}${begun.id}/`, { method: "DELETE", headers: { "X-CSRFToken": box.token } });
    if (!response.ok && response.status !== 404) return;
    known = known.filter((other) => other.id !== begun.id);
    if (upload.value === String(begun.id)) upload.value = "";
    showKnown();
  }

  function button(words, name, click) {
    return element("button", { type: "button", className: "btn btn-sm", "aria-label": `${words} ${name}`, click }, words);
  }

  function item(begun) {
    const { id, name, offset, size_bytes: size } = begun;
    const isWhole = offset === size;
    const isChosen = upload.value === String(id);
    const part = `${Math.floor((100 * offset) / size)} % is uploaded. Choose the same file again to continue.`;
    const whole = isChosen ? "uploaded, and used when you send the form." : "uploaded.";
    const line = element("li", {}, element("span", {}, `${name}: ${isWhole ? whole : part}`));
    if (isWhole && !isChosen) line.append(button("Use", name, () => choose(id)));
    line.append(button("Remove", name, () => giveUp(begun)));
    return line;
  }

  function showKnown() {
    unfinished.querySelector("ul").replaceChildren(...known.map(item));
    unfinished.hidden = known.length === 0;
  }

  file.addEventListener("change", () => choose(""));
  upload.addEventListener("change", showKnown);
  form.addEventListener("submit", onSubmit, { capture: true });
  showKnown();
}
