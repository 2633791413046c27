// A window of lines. Text is put in as text, and styles are words of a fixed list: nothing that a script writes can
// become markup. What leaves the window at one end is forgotten, and read again when somebody scrolls back.

import { element } from "../../dom.js";
import { sizeWords } from "../../words.js";

const MAX_LINES = 2_000;
const END_LINES = 1_000;
const LEAST_END_LINES = 50;
//: The words that the server may name, see jobs/files/log_lines.py.
const STYLES = new Set([
  "bold",
  "dim",
  "italic",
  "underline",
  "inverse",
  "strike",
  ...["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"].flatMap((colour) => [colour, `on-${colour}`]),
]);

export class LogView {
  constructor(box) {
    this.box = box;
    this.lastTop = 0;
    this.isTagged = false;
    this.lastTag = null;
  }

  //: The end of each log, one after the other; empty ones are left out.
  showEnds(pieces, { many, empty }) {
    const written = pieces.filter((piece) => piece.lines.length || piece.unfinished);
    const share = Math.max(LEAST_END_LINES, Math.floor(END_LINES / Math.max(1, written.length)));
    this.isTagged = many;
    this.lastTag = null;
    this.box.replaceChildren();
    for (const { log, start, lines, unfinished } of written) {
      const shown = lines.slice(-share);
      if (many) this.box.append(head(log, start > 0 || shown.length < lines.length));
      this.lastTag = log.topic;
      this.box.append(...shown.map((line) => this.line(log, line)));
      this.showUnfinished(log, unfinished);
    }
    if (!written.length) this.box.dataset.empty = empty;
    else delete this.box.dataset.empty;
    this.toEnd();
  }

  showPlace(log, lines, unfinished) {
    this.isTagged = false;
    delete this.box.dataset.empty;
    this.box.replaceChildren(...lines.map((line) => this.line(log, line)));
    this.showUnfinished(log, unfinished);
  }

  append(log, lines, unfinished) {
    if (!lines.length && !unfinished) return;
    delete this.box.dataset.empty;
    const wasAtEnd = this.isAtEnd();
    this.unfinishedOf(log)?.remove();
    if (this.isTagged && this.lastTag !== log.topic) this.box.append(head(log, false));
    this.lastTag = log.topic;
    this.box.append(...lines.map((line) => this.line(log, line)));
    this.showUnfinished(log, unfinished);
    this.trim("firstElementChild");
    if (wasAtEnd) this.toEnd();
  }

  //: Earlier lines; answers where the window ends now if it lost lines there.
  prepend(log, lines) {
    const [height, top] = [this.box.scrollHeight, this.box.scrollTop];
    this.box.prepend(...lines.map((line) => this.line(log, line)));
    this.box.scrollTop = top + this.box.scrollHeight - height;
    return this.trim("lastElementChild");
  }

  //: Later lines; answers where the window begins now if it lost lines there.
  extend(log, lines, unfinished) {
    this.unfinishedOf(log)?.remove();
    this.box.append(...lines.map((line) => this.line(log, line)));
    this.showUnfinished(log, unfinished);
    const [height, top] = [this.box.scrollHeight, this.box.scrollTop];
    if (this.trim("firstElementChild") === null) return null;
    this.box.scrollTop = top - (height - this.box.scrollHeight);
    return Number(this.box.querySelector(".log-line").dataset.at);
  }

  //: Says how much was left out, because it was written faster than anybody reads.
  skip(log, count) {
    const words = `… ${sizeWords(count)} of ${nameOf(log)}, ${log.stream} left out here: pause to read them`;
    if (count > 0) this.box.append(element("div", { className: "log-head" }, words));
  }

  trim(end) {
    let last = null;
    while (this.box.childElementCount > MAX_LINES) {
      last = this.box[end];
      last.remove();
    }
    return last && last.dataset.at !== undefined ? Number(last.dataset.at) : null;
  }

  line(log, { at, spans, cut_bytes: cut }) {
    const row = element("div", { className: `log-line log-${log.stream}`, "data-at": at, "data-log": log.topic });
    for (const { text, style } of spans) {
      const known = style ? style.split(" ").filter((word) => STYLES.has(word)) : [];
      row.append(known.length ? element("span", { className: known.map((word) => `ansi-${word}`).join(" ") }, text) : text);
    }
    if (cut) row.append(element("span", { className: "log-cut" }, ` … this line has ${sizeWords(cut)}: download the log to see all of it`));
    return row;
  }

  showUnfinished(log, unfinished) {
    if (!unfinished) return;
    const row = this.line(log, unfinished);
    row.dataset.unfinished = "";
    this.box.append(row);
  }

  unfinishedOf(log) {
    return [...this.box.querySelectorAll("[data-unfinished]")].find((row) => row.dataset.log === log.topic);
  }

  lineAt(at) {
    return this.box.querySelector(`.log-line[data-at="${Number(at)}"]`);
  }

  toEnd() {
    this.box.scrollTop = this.box.scrollHeight;
    this.lastTop = this.box.scrollTop;
  }

  isAtEnd() {
    return this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < 40;
  }

  //: Whether the last scrolling went up: a person's, as lines that come only ever move down.
  movedUp() {
    const isUp = this.box.scrollTop < this.lastTop - 1;
    this.lastTop = this.box.scrollTop;
    return isUp;
  }
}

export function nameOf(log) {
  return log.number === null ? log.rank : `rank ${log.number}`;
}

function head(log, hasEarlier) {
  // A process without a rank's number has its id for a name.
  const parts = new Set([nameOf(log), log.stream, log.rank, ...(hasEarlier ? ["end of the log"] : [])]);
  return element("div", { className: "log-head" }, [...parts].join(" · "));
}
