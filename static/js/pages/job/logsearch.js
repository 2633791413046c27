// Searches whole logs, on the server: the page holds only a window of them. Marks what is found in that window.

import { fetchJson } from "../../live.js";

const WAIT_MS = 250;

export class Search {
  constructor(logs) {
    this.logs = logs;
    this.input = document.getElementById("log-search");
    this.count = document.getElementById("log-count");
    this.forget();
    this.input.addEventListener("input", () => this.onInput());
    this.input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      this.step(event.shiftKey ? -1 : 1);
    });
    document.getElementById("log-next").addEventListener("click", () => this.step(1));
    document.getElementById("log-previous").addEventListener("click", () => this.step(-1));
  }

  forget() {
    Object.assign(this, { total: 0, number: 0, match: null, turn: (this.turn ?? 0) + 1 });
    this.say("");
  }

  onInput() {
    clearTimeout(this.timer);
    this.forget();
    if (this.input.value) this.timer = setTimeout(() => this.step(1), WAIT_MS);
    else this.highlight();
  }

  //: The next match or the one before, around the ends. Logs grow: the count is made anew each time. Who asks again before
  //: the answer is there goes on from what was asked for: each press counts.
  async step(by) {
    const needle = this.input.value;
    if (!needle) return;
    clearTimeout(this.timer);
    const turn = ++this.turn;
    const before = this.number;
    this.say("searching …");
    this.number = before + by > 0 ? before + by : this.total || 1;
    let found = await this.find(needle, this.number);
    if (turn !== this.turn) return;
    if (found && !found.match && found.count) {
      this.number = this.number > found.count ? 1 : found.count;
      found = await this.find(needle, this.number);
      if (turn !== this.turn) return;
    }
    if (!found) {
      this.number = before;
      return;
    }
    Object.assign(this, { total: found.count, number: found.match ? this.number : 0, match: found.match });
    await this.show(found);
  }

  async find(needle, number) {
    const query = new URLSearchParams({ ...this.logs.scope(), q: needle, number });
    try {
      return await fetchJson(`${this.logs.address}search/?${query}`);
    } catch {
      this.say("The server did not answer the search: try again.");
      return null;
    }
  }

  async show({ count, is_complete: isComplete, match }) {
    const all = isComplete ? String(count) : `more than ${count}`;
    this.say(match ? `${this.number} of ${all}` : isComplete ? "no match" : `none in what could be searched in time`);
    if (!match) {
      this.highlight();
      return;
    }
    const log = this.logs.logs.find((one) => one.attempt === match.attempt && one.rank === match.rank && one.stream === match.stream);
    if (log) await this.logs.showPlace(log, match.at);
    this.highlight();
    this.current()?.scrollIntoView({ block: "center" });
  }

  //: Marks every match in the window, and the current one as such.
  highlight() {
    const { view } = this.logs;
    CSS.highlights?.delete("log-match");
    CSS.highlights?.delete("log-current");
    for (const row of view.box.querySelectorAll(".log-current")) row.classList.remove("log-current");
    const current = this.current();
    current?.classList.add("log-current");
    if (!CSS.highlights || !this.input.value) return;
    CSS.highlights.set("log-match", new Highlight(...[...view.box.querySelectorAll(".log-line")].flatMap((row) => rangesIn(row, this.input.value))));
    const range = current && rangesIn(current, this.input.value)[this.match.nth];
    if (range) CSS.highlights.set("log-current", new Highlight(range));
  }

  current() {
    return this.match && !this.logs.isFollowing ? this.logs.view.lineAt(this.match.at) : null;
  }

  say(words) {
    this.count.textContent = words;
  }
}

//: Ranges of the text in a line, across its spans. Only a to z match A to Z, as on the server.
function rangesIn(row, needle) {
  const lower = (text) => text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
  const [text, wanted] = [lower(row.textContent), lower(needle)];
  const ranges = [];
  for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
    const range = new Range();
    range.setStart(...pointAt(row, at));
    range.setEnd(...pointAt(row, at + wanted.length));
    ranges.push(range);
  }
  return ranges;
}

function pointAt(row, offset) {
  const texts = document.createTreeWalker(row, NodeFilter.SHOW_TEXT);
  let left = offset;
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    if (left <= node.length) return [node, left];
    left -= node.length;
  }
  return [row, row.childNodes.length];
}
