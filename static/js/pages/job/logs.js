// Logs of a job's ranks: followed live, or read at any place, in constant memory.
//
// The viewer holds a window of lines (logview.js). Following, it is the end of each log that is chosen, and new lines
// come by websocket; else it is a place in one log, and scrolling to an edge reads on from there.

import { element } from "../../dom.js";
import { fetchJson, live } from "../../live.js";
import { isOver } from "../../words.js";
import { Search } from "./logsearch.js";
import { LogView, nameOf } from "./logview.js";

//: Topics of logs that the page follows at once: far fewer than a websocket may have, as the page has others.
const MAX_FOLLOWED = 40;
const EDGE_PX = 200;

export function start(page, root) {
  if (!document.getElementById("log-text")) return {};
  return new Logs(page, root);
}

class Logs {
  constructor(page, root) {
    Object.assign(this, { page, root, logs: [], watched: new Map(), isFollowing: true, place: null, isPicked: false });
    //: Counts what was asked for, and which of that stands in the view: until it comes, the view holds the former.
    Object.assign(this, { reading: 0, shown: 0 });
    this.address = `/api/v1/jobs/${page.job}/logs/`;
    this.choice = document.getElementById("log-rank");
    this.stream = document.getElementById("log-stream");
    this.follow = document.getElementById("log-follow");
    this.view = new LogView(document.getElementById("log-text"));
    this.search = new Search(this);
    this.choice.addEventListener("change", () => this.pick());
    this.stream.addEventListener("change", () => this.pick());
    this.follow.addEventListener("click", () => this.setFollowing(!this.isFollowing));
    this.view.box.addEventListener("scroll", () => this.onScroll(), { passive: true });
    document.getElementById("log-tools").addEventListener("submit", (event) => event.preventDefault());
    document.addEventListener("tidepool:tab", () => this.open());
    this.open();
  }

  //: Ranks come and go with generations and attempts.
  showSnapshot(snapshot) {
    this.page.log = snapshot.log;
    this.hasOpened = false;
    this.open();
  }

  //: Nothing is read until somebody looks.
  open() {
    const isShown = !document.hidden && document.getElementById("logs").classList.contains("active");
    if (!isShown) this.unwatchAll();
    else if (!this.hasOpened) this.readList().catch(() => this.sayUnread());
    else if (this.isFollowing) this.showEnd().catch(() => this.sayUnread());
  }

  async readList() {
    this.hasOpened = true;
    const logs = [];
    for (let next = `${this.address}files/`; next; ) {
      const answer = await fetchJson(next);
      logs.push(...answer.results);
      next = answer.next && new URL(answer.next).pathname + new URL(answer.next).search;
    }
    const isNew = logs.map(keyOf).join() !== this.logs.map(keyOf).join();
    this.logs = logs;
    this.showChoices();
    if ((isNew || this.shown !== this.reading) && this.isFollowing) await this.showEnd();
  }

  showChoices() {
    const kept = this.choice.value;
    const attempts = [...new Set(this.logs.map((log) => log.attempt))].reverse();
    this.choice.replaceChildren(...attempts.map((number) => this.group(number, attempts.length > 1)));
    if (this.isPicked) this.choice.value = kept;
    if (this.choice.selectedIndex < 0) this.choice.selectedIndex = 0;
    document.getElementById("log-empty").hidden = this.logs.length > 0;
    for (const id of ["log-tools", "log-text", "log-note"]) document.getElementById(id).hidden = this.logs.length === 0;
  }

  group(attempt, isOneOfMany) {
    const ranks = this.logs.filter((log) => log.attempt === attempt && log.stream === "stdout");
    const options = ranks.map(
      (log) => new Option(`${nameOf(log)}${log.number === null ? "" : ` (${log.rank})`}${log.has_ended ? ", ended" : ""}`, `${attempt}/${log.rank}`),
    );
    if (ranks.length > 1) options.unshift(new Option(`All ${ranks.length}`, `${attempt}/`));
    return element("optgroup", { label: isOneOfMany ? `Attempt ${attempt}` : "Ranks" }, ...options);
  }

  //: The logs that are chosen.
  chosen() {
    const [attempt, rank] = splitOnce(this.choice.value);
    return this.logs.filter(
      (log) => String(log.attempt) === attempt && (!rank || log.rank === rank) && (!this.stream.value || log.stream === this.stream.value),
    );
  }

  //: The same as a query of the API.
  scope() {
    const [attempt, rank] = splitOnce(this.choice.value);
    return { attempt, rank, stream: this.stream.value };
  }

  pick() {
    this.isPicked = true;
    this.search.forget();
    this.setFollowing(true);
  }

  setFollowing(on) {
    this.isFollowing = on;
    this.follow.setAttribute("aria-pressed", String(on));
    this.follow.querySelector("span").textContent = on ? "Follow" : "Go to the end and follow";
    if (on) this.showEnd().catch(() => this.sayUnread());
  }

  // --- The end of what is chosen, live ---

  async showEnd() {
    const turn = ++this.reading;
    const logs = this.chosen();
    this.showDownload(logs);
    this.place = null;
    const pieces = await Promise.all(logs.slice(0, MAX_FOLLOWED).map(async (log) => ({ log, ...(await this.lines(log, {})) })));
    if (turn !== this.reading) return;
    this.shown = turn;
    this.view.showEnds(pieces, { many: logs.length > 1, empty: this.nothingWritten() });
    if (logs.length === 1) this.place = { log: logs[0], start: pieces[0].start, next: pieces[0].next };
    this.note(logs);
    this.watch(pieces);
    this.search.highlight();
  }

  note(logs) {
    const parts = [];
    if (logs.length > 1) parts.push("The end of each log is shown, followed by new lines. Select one rank and stream to read earlier lines.");
    if (logs.length > MAX_FOLLOWED) parts.push(`The first ${MAX_FOLLOWED} of ${logs.length} logs are followed.`);
    document.getElementById("log-note").textContent = parts.join(" ");
  }

  sayUnread() {
    if (!this.logs.length) {
      this.hasOpened = false; // the list is read again when somebody comes back to the tab
      this.view.box.dataset.empty = "The log could not be read: open this tab again.";
    } else if (this.shown !== this.reading) {
      document.getElementById("log-note").textContent = "The log could not be read: select it again.";
      if (!this.shown) this.view.box.dataset.empty = "";
    }
  }

  nothingWritten() {
    const whose = splitOnce(this.choice.value)[1] ? "This rank" : "The script";
    const where = this.stream.value || "stdout or stderr";
    return isOver(this.root.dataset.state) ? `${whose} wrote nothing to ${where}.` : `${whose} has written nothing to ${where} yet.`;
  }

  watch(pieces) {
    const wanted = new Map(pieces.map((piece) => [piece.log.topic, piece]));
    for (const topic of this.watched.keys()) if (!wanted.has(topic)) this.unwatch(topic);
    for (const [topic, { log, next, size }] of wanted) {
      this.unwatch(topic);
      const followed = { log, next };
      this.watched.set(topic, followed);
      live.watch({ name: topic, seq: size, read: () => this.readOn(followed), onAppend: (news) => this.addLines(followed, news) });
    }
  }

  unwatch(topic) {
    if (this.watched.delete(topic)) live.unwatch(topic);
  }

  unwatchAll() {
    for (const topic of [...this.watched.keys()]) this.unwatch(topic);
  }

  //: Frames may repeat lines, which have places, and may leave some out, which are read.
  addLines(followed, news) {
    if (!this.isFollowing || news.after === undefined) return;
    if (news.after > followed.next) {
      this.readOn(followed).catch(() => {});
      return;
    }
    const lines = news.lines.filter((line) => line.at >= followed.next);
    followed.next = Math.max(followed.next, news.next);
    this.view.append(followed.log, lines, news.unfinished);
    if (this.place) this.place.next = followed.next;
    this.search.highlight();
  }

  //: Reads the lines that a broken chain of events left out; of a log that grew by more than one piece, its end.
  async readOn(followed) {
    const piece = await this.lines(followed.log, { after: followed.next });
    if (piece.next < piece.size && !piece.unfinished) {
      const end = await this.lines(followed.log, {});
      if (this.isFollowing) this.view.skip(followed.log, end.start - followed.next);
      followed.next = end.start;
      this.addLines(followed, { ...end, after: end.start });
      return { seq: end.size, state: {}, append: {} };
    }
    this.addLines(followed, { ...piece, after: piece.start });
    return { seq: piece.size, state: {}, append: {} };
  }

  // --- A place in one log ---

  //: `log` from the line at `at` on, with what stands before it.
  async showPlace(log, at) {
    const turn = ++this.reading;
    this.setFollowing(false);
    this.unwatchAll();
    const before = at ? await this.lines(log, { before: at }) : null;
    const after = await this.lines(log, { after: at });
    if (turn !== this.reading) return;
    this.shown = turn;
    this.place = { log, start: before ? before.start : 0, next: after.next };
    this.view.showPlace(log, [...(before?.lines ?? []), ...after.lines], after.unfinished);
    document.getElementById("log-note").textContent = `${nameOf(log)}, ${log.stream}.`;
  }

  //: Only what was asked for can be scrolled by its reader: the former log's place says nothing about it.
  async onScroll() {
    if (this.shown !== this.reading) return;
    const { box } = this.view;
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < EDGE_PX / 2;
    if (this.isFollowing && !atEnd && this.view.movedUp()) {
      this.setFollowing(false);
      this.unwatchAll();
    }
    if (!this.place || this.isMoving) return;
    this.isMoving = true;
    try {
      if (box.scrollTop < EDGE_PX && this.place.start > 0) await this.readEdge({ before: this.place.start });
      else if (!this.isFollowing && atEnd) await this.readEdge({ after: this.place.next });
    } finally {
      this.isMoving = false;
    }
  }

  async readEdge(edge) {
    const { place, reading } = this;
    const piece = await this.lines(place.log, edge);
    if (reading !== this.reading || place !== this.place) return;
    if (edge.before !== undefined) {
      place.start = piece.start;
      place.next = this.view.prepend(place.log, piece.lines) ?? place.next;
    } else if (piece.lines.length) {
      place.next = piece.next;
      place.start = this.view.extend(place.log, piece.lines, piece.unfinished) ?? place.start;
    }
    this.search.highlight();
  }

  lines(log, where) {
    const query = new URLSearchParams({ attempt: log.attempt, rank: log.rank, stream: log.stream, ...where });
    return fetchJson(`${this.address}lines/?${query}`);
  }

  showDownload(logs) {
    const query = logs.length === 1 ? `?${new URLSearchParams({ attempt: logs[0].attempt, rank: logs[0].rank, stream: logs[0].stream })}` : "";
    const link = document.getElementById("log-download");
    link.href = `${this.address}download/${query}`;
    link.querySelector("span").textContent = logs.length === 1 ? "Download this log" : "Download all logs";
  }
}

function keyOf(log) {
  return `${log.topic} ${log.number} ${log.has_ended}`;
}

function splitOnce(value) {
  const place = value.indexOf("/");
  return [value.slice(0, place), value.slice(place + 1)];
}
