// Events of a job, the newest first, as a timeline by day: time, event, reason and actor.

import { element, timeElement } from "../../dom.js";
import { refreshTimes } from "../../frame.js";
import { clock, inWords } from "../../words.js";

const EVENTS_SHOWN = 500;
//: Actors that are not people.
const PARTS = new Set(["scheduler", "executor", "system", ""]);
const GPUS = new Set([
  "GRANTED",
  "GREW_INTO_FREE_SLOTS",
  "SHRUNK_FOR_FAIR_SHARE",
  "PREEMPTED_BY_PRIORITY",
  "RECLAIMED_BY_OWNER",
  "REBALANCED",
  "GREW_FOR_GOODPUT",
  "MOVED_FOR_GOODPUT",
  "SHRUNK_FOR_GOODPUT",
  "LIMIT_CHANGED",
  "GROWTH_GIVEN_UP",
]);
const TROUBLE = new Set([
  "HOST_LOST",
  "RANK_LOST",
  "GROWTH_GIVEN_UP",
  "STACK_STOPPED",
  "LAUNCH_TIMEOUT",
  "EXIT_NONZERO",
  "OUT_OF_MEMORY",
  "NO_PROGRESS",
  "TIME_LIMIT",
  "CHECKPOINT_FAILED",
  "HALT_TIMEOUT",
  "REPORT_SET_ASIDE",
]);

const KINDS = {
  state: (event) => event.old !== event.new,
  gpus: (event) => GPUS.has(event.reason.code),
  people: (event) => !PARTS.has(event.actor),
  trouble: (event) => TROUBLE.has(event.reason.code),
};

export function start() {
  const events = new Map();
  const kind = document.getElementById("event-kind");
  const text = document.getElementById("event-text");
  const refresh = () =>
    show(
      [...events.values()].sort((one, other) => other.seq - one.seq),
      kind.value,
      text.value.trim().toLowerCase(),
    );
  kind.addEventListener("change", refresh);
  text.addEventListener("input", refresh);
  document.getElementById("event-tools").addEventListener("submit", (event) => event.preventDefault());
  return {
    append(news) {
      if (!news.events?.length) return;
      for (const event of news.events) events.set(event.seq, event);
      refresh();
    },
  };
}

function show(events, kind, text) {
  const fitting = events.filter((event) => (KINDS[kind]?.(event) ?? true) && `${event.reason.text} ${event.actor}`.toLowerCase().includes(text));
  const list = document.getElementById("event-rows");
  const rows = [];
  let day = "";
  for (const event of fitting.slice(0, EVENTS_SHOWN)) {
    const today = new Date(event.at).toLocaleDateString("en-GB", { weekday: "long", year: "numeric", month: "long", day: "numeric" });
    if (today !== day) rows.push(element("li", { className: "event-day" }, today));
    day = today;
    rows.push(row(event));
  }
  list.replaceChildren(...rows);
  document.getElementById("event-empty").hidden = fitting.length > 0 || events.length === 0;
  document.getElementById("event-count").textContent =
    fitting.length === events.length ? `${events.length} events` : `${fitting.length} of ${events.length} events`;
  refreshTimes(list);
}

function row({ at, old, new: state, reason, actor }) {
  const who = PARTS.has(actor) ? `by the ${actor || "system"}` : `by ${actor}`;
  const change = element("span", { className: "tag" }, old ? `${inWords(old)} → ${inWords(state)}` : inWords(state));
  return element(
    "li",
    { className: `job-event${TROUBLE.has(reason.code) ? " is-trouble" : ""}` },
    element("span", { className: "event-time" }, clock(new Date(at)), element("br"), timeElement(at)),
    element("div", {}, ...(old === state ? [] : [change, " "]), reason.text, element("span", { className: "event-actor" }, who)),
  );
}
