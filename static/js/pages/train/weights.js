// Weights from the user's computer: sent as soon as a file is chosen, then one more choice of what to start from.

import { fetchJson } from "../../live.js";
import { UploadBox } from "../../upload_box.js";

const GROUP = "The weights in a file that you uploaded";

export function offerUpload(form) {
  const part = document.getElementById("weights");
  const input = document.getElementById("weights-file");
  const address = part.dataset.uploads;
  const box = new UploadBox(part.querySelector(".upload"), {
    address,
    token: form.elements.namedItem("csrfmiddlewaretoken").value,
    suffixes: part.dataset.suffixes.split(","),
    maxBytes: Number(part.dataset.maxBytes),
    resume: send,
  });

  async function send() {
    const [file] = input.files;
    if (!file || box.isBusy) return;
    const id = await box.send(file, await begunUpload(address, file));
    if (id === null) return;
    offer(form.elements.namedItem("start_from"), `upload-${id}`, file.name);
    box.box.hidden = true;
    input.value = "";
  }

  input.addEventListener("change", send);
  form.addEventListener(
    "submit",
    (event) => {
      if (!box.isBusy) return;
      event.preventDefault();
      box.say("problem", "The weights are still being sent: start the training once they are here.");
    },
    { capture: true },
  );
}

//: What of this file is on the server already, in part.
async function begunUpload(address, file) {
  const { results } = await fetchJson(address);
  const isPart = (upload) => upload.name === file.name && upload.size_bytes === file.size && upload.offset < file.size;
  return results.find(isPart) ?? null;
}

function offer(select, value, name) {
  let group = [...select.querySelectorAll("optgroup")].find(({ label }) => label === GROUP);
  if (!group) {
    group = document.createElement("optgroup");
    group.label = GROUP;
    select.options[0].after(group);
  }
  group.prepend(new Option(name, value));
  select.value = value;
  select.dispatchEvent(new Event("input", { bubbles: true }));
}
