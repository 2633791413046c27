// Shows an upload while it runs: how far it is and how fast, a pause, and what is wrong with the file.

import { Sender } from "./upload.js";
import { bytes } from "./words.js";

export class UploadBox {
  //: `resume` is called when somebody presses "Go on" after the server refused the file.
  constructor(box, { address, token, suffixes, maxBytes, resume }) {
    Object.assign(this, { box, address, token, suffixes, maxBytes, resume });
    this.sender = null;
    this.pauseButton = box.querySelector("[data-pause]");
    this.pauseButton.addEventListener("click", () => this.togglePause());
    addEventListener("beforeunload", (event) => this.sender && !this.sender.isPaused && event.preventDefault());
  }

  get isBusy() {
    return this.sender !== null;
  }

  say(name, words) {
    this.box.querySelector(`[data-field="${name}"]`).textContent = words;
  }

  //: The id of the upload once all of it is there; null if it is refused, which is said. `begun`: what is there in part.
  async send(file, begun = null) {
    const problem = this.problemOf(file);
    this.box.hidden = false;
    this.say("name", file.name);
    this.say("words", "");
    this.say("problem", problem);
    this.pauseButton.hidden = Boolean(problem);
    if (problem) return null;
    const onProgress = (progress) => this.showProgress(progress);
    this.sender = new Sender({ address: this.address, token: this.token, file, begun, onProgress });
    try {
      return await this.sender.run();
    } catch (error) {
      this.say("words", "");
      this.say("problem", error.message);
      return null;
    } finally {
      this.sender = null;
    }
  }

  //: Said before the server is asked: it would refuse the same.
  problemOf(file) {
    const fits = this.suffixes.some((suffix) => file.name.toLowerCase().endsWith(suffix));
    if (!fits) return `A file of this kind is not taken: choose one of ${this.suffixes.join(", ")}.`;
    if (file.size === 0) return "The file is empty: choose another one.";
    if (file.size > this.maxBytes)
      return `The file has ${bytes(file.size)}, more than the server takes: ask an administrator to raise TIDEPOOL_UPLOAD_MAX_BYTES.`;
    return "";
  }

  showProgress({ sent, size, perSecond, words }) {
    this.box.querySelector("progress").value = size ? sent / size : 0;
    const left = perSecond > 0 ? `, about ${Math.ceil((size - sent) / perSecond)} s left` : "";
    const speed = perSecond > 0 ? `, ${bytes(perSecond)}/s${left}` : "";
    this.say("words", words || `${bytes(sent)} of ${bytes(size)} (${Math.floor((100 * sent) / size)} %)${speed}`);
  }

  togglePause() {
    if (!this.sender) this.resume();
    else if (this.sender.isPaused) this.sender.resume();
    else this.sender.pause();
    this.pauseButton.textContent = this.sender?.isPaused ? "Go on" : "Pause";
  }
}
