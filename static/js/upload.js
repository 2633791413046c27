// Sends a file in pieces, and shows how far it is. The server says where the next piece begins, so that nothing is sent
// twice and nothing is lost.

import { setField } from "./dom.js";
import { sizeWords } from "./words.js";

const RETRY_MS = [500, 1_000, 2_000, 4_000, 8_000, 15_000];
//: Speed is the mean over so many pieces.
const REMEMBERED = 8;

//: Sending again does not help.
class Refused extends Error {}

class Sender {
  //: `begun` is an upload of this file that is here in part. `onProgress` gets {sent, size, perSecond, words}.
  constructor({ address, token, file, begun = null, onProgress }) {
    Object.assign(this, { address, token, file, onProgress });
    this.upload = begun;
    this.isPaused = false;
    this.failures = 0;
    this.times = [];
    this.wakeUp = () => {};
    addEventListener("online", () => this.wakeUp());
  }

  pause() {
    this.isPaused = true;
    this.tell("Paused. The uploaded part is kept.");
  }

  resume() {
    this.isPaused = false;
    this.times = [];
    this.wakeUp();
  }

  //: Resolves to the upload's id once all is there. Throws where the server refuses the file.
  async run() {
    for (;;) {
      try {
        if (!this.upload) this.upload = await this.begin();
        while (this.upload.offset < this.file.size) {
          await this.whilePaused();
          await this.sendPiece();
          this.tell();
        }
        return this.upload.id;
      } catch (error) {
        if (error instanceof Refused) throw error;
        await this.afterFailure();
      }
    }
  }

  tell(words = "") {
    const [first, last] = [this.times[0], this.times.at(-1)];
    const seconds = first && last ? (last.at - first.at) / 1000 : 0;
    const perSecond = seconds > 0 ? (last.offset - first.offset) / seconds : 0;
    this.onProgress({ sent: this.upload?.offset ?? 0, size: this.file.size, perSecond, words });
  }

  async begin() {
    const body = JSON.stringify({ name: this.file.name, size_bytes: this.file.size });
    return this.ask(this.address, { method: "POST", body, headers: { "Content-Type": "application/json" } });
  }

  async sendPiece() {
    const { id, offset, chunk_bytes: length } = this.upload;
    const headers = { "Content-Type": "application/octet-stream", "Upload-Offset": String(offset) };
    const body = this.file.slice(offset, offset + length);
    this.upload = await this.ask(`${this.address}${id}/`, { method: "PATCH", body, headers });
    this.failures = 0;
    this.times = [...this.times, { at: performance.now(), offset: this.upload.offset }].slice(-REMEMBERED);
  }

  //: 409: the server has another offset; 404: the upload is gone. Both are queried after the wait.
  async ask(address, options) {
    const response = await fetch(address, { ...options, headers: { "X-CSRFToken": this.token, ...options.headers } });
    if (response.ok) return response.json();
    if (response.status >= 500 || response.status === 409) throw new Error(`answered ${response.status}`);
    if (response.status === 404 && this.upload) {
      this.upload = null;
      throw new Error("the upload is gone");
    }
    if (response.status === 401) {
      document.dispatchEvent(new CustomEvent("tidepool:logged-out"));
      throw new Refused("You are logged out: log in, and choose the same file again. The uploaded part is kept.");
    }
    const told = await response.json().catch(() => ({}));
    throw new Refused(told.error ?? `The server rejected the file (${response.status}): reload the page.`);
  }

  async afterFailure() {
    const wait = RETRY_MS[Math.min(this.failures, RETRY_MS.length - 1)];
    this.failures += 1;
    this.times = [];
    this.tell("The connection was lost. The upload continues automatically; the uploaded part is kept.");
    await this.pauseFor(wait);
    if (!this.upload) return;
    try {
      this.upload = await this.ask(`${this.address}${this.upload.id}/`, { method: "GET" });
    } catch (error) {
      if (error instanceof Refused) throw error;
    }
  }

  async whilePaused() {
    while (this.isPaused) await this.pauseFor(null);
  }

  pauseFor(milliseconds) {
    return new Promise((resolve) => {
      const timer = milliseconds === null ? null : setTimeout(resolve, milliseconds);
      this.wakeUp = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

//: Shows an upload while it runs: how far it is and how fast, a pause, and what is wrong with the file.
export class UploadBox {
  //: `source` says where uploads go and what is taken: data-uploads, data-suffixes, data-max-bytes. `resume` is called when
  //: the user presses "Continue" after the server refused the file.
  constructor(box, source, resume) {
    const { uploads, suffixes, maxBytes } = source.dataset;
    const token = document.querySelector("[name=csrfmiddlewaretoken]").value;
    Object.assign(this, { box, address: uploads, token, suffixes: suffixes.split(","), maxBytes: Number(maxBytes), resume });
    this.sender = null;
    this.pauseButton = box.querySelector("[data-pause]");
    this.pauseButton.addEventListener("click", () => this.togglePause());
    addEventListener("beforeunload", (event) => this.sender && !this.sender.isPaused && event.preventDefault());
  }

  get isBusy() {
    return this.sender !== null;
  }

  say(name, words) {
    setField(this.box, name, words);
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
    this.sender = new Sender({ address: this.address, token: this.token, file, begun, onProgress: (progress) => this.showProgress(progress) });
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
    if (!fits) return `A file of this kind is not accepted: choose one of ${this.suffixes.join(", ")}.`;
    if (file.size === 0) return "The file is empty: choose another one.";
    if (file.size > this.maxBytes)
      return `The file has ${sizeWords(file.size)}, more than the server accepts: ask an administrator to raise TIDEPOOL_UPLOAD_MAX_BYTES.`;
    return "";
  }

  showProgress({ sent, size, perSecond, words }) {
    this.box.querySelector("progress").value = size ? sent / size : 0;
    const left = perSecond > 0 ? `, about ${Math.ceil((size - sent) / perSecond)} s left` : "";
    const speed = perSecond > 0 ? `, ${sizeWords(perSecond)}/s${left}` : "";
    this.say("words", words || `${sizeWords(sent)} of ${sizeWords(size)} (${Math.floor((100 * sent) / size)} %)${speed}`);
  }

  togglePause() {
    if (!this.sender) this.resume();
    else if (this.sender.isPaused) this.sender.resume();
    else this.sender.pause();
    this.pauseButton.textContent = this.sender?.isPaused ? "Continue" : "Pause";
  }
}
