// The pool of GPUs as Overview and Cluster show it: tiles that the server renders anew, and the trace of who had how many.

import { TideChart } from "./charts.js";
import { press } from "./dom.js";
import { readJson } from "./figure.js";
import { followRows, renewer } from "./fresh.js";
import { atMostEvery, CLUSTER_TOPIC, fetchJson, isUrgent, live } from "./live.js";
import { followReadings, READINGS_MS } from "./readings.js";
import { say } from "./toasts.js";
import { duration, exactTime } from "./words.js";

const SOON_MS = 300;
const TRACE_MS = 15_000;
const ANOTHERS = "another user's training";

//: The server makes few points of however many changes; steps that come live are added until it is asked again.
export class Trace extends TideChart {
  take(figure) {
    this.figure = figure;
    this.takeCapacity(figure);
    this.takeHeld(figure);
    this.bands.clear();
    for (const trace of figure.data.filter((one) => one.meta.kind === "band")) this.addBand(trace);
    this.draw();
  }

  means() {
    return this.figure.layout.meta.mean_seconds;
  }

  mark(changes, band, grid, total, start) {
    if (!this.means()) super.mark(changes, band, grid, total, start);
  }

  rows() {
    if (!this.means()) return super.rows();
    return this.figure.layout.meta.changes.map(([at, , label, slots, text, pause]) => [
      exactTime(new Date(at)),
      label ?? ANOTHERS,
      slots,
      text,
      pause === null ? "" : Math.round(pause),
    ]);
  }

  hasData() {
    return this.bands.size > 0 || this.held.some(({ slots }) => slots > 0);
  }

  drawn() {
    super.drawn();
    const { count, changes } = this.figure.layout.meta;
    const all = this.panel.dataset.source ? "and so has the CSV" : "the CSV all";
    const rings = this.hasRings() ? "" : `${this.changes.x.length} changes: point at an edge for the reason, or open the table.`;
    const note = this.means()
      ? `${count} changes: each point is the mean of ${duration(this.means() * 1000)}. The table has the newest ${changes.length}, ${all}.`
      : rings;
    this.panel.querySelector(".chart-note").textContent = note;
  }

  //: The API has all changes of the pool; of a group the browser writes what it draws.
  saveCsv() {
    if (this.panel.dataset.source) return super.saveCsv();
    location.assign(`/api/v1/cluster/trace.csv?minutes=${this.windowMs / 60_000}`);
  }
}

//: The trace in `panel`, from the figure that the page came with. Answers with what has the server make a newer one.
export function startTrace(panel) {
  const minutes = readJson("minutes");
  const trace = new Trace(panel, readJson(`figure-${panel.dataset.chart}`), { windowMs: minutes * 60_000 });
  const source = panel.dataset.source ?? "/cluster/trace.json";
  let asked = 0;

  async function ask() {
    const number = ++asked;
    const figure = await fetchJson(`${source}?minutes=${trace.windowMs / 60_000}`);
    if (number === asked) trace.take(figure);
  }

  function choose(chosen) {
    trace.windowMs = Number(chosen) * 60_000;
    panel.setAttribute("aria-busy", "true");
    ask()
      .catch(() => say("The chart still shows the period before: the server did not answer. It tries again by itself.", { kind: "error" }))
      .finally(() => panel.removeAttribute("aria-busy"));
  }

  const buttons = [...panel.querySelectorAll("[data-window]")];
  const kept = localStorage.getItem("tidepool-window");
  const isKept = buttons.some((button) => button.dataset.window === kept);
  press(buttons, "window", isKept ? kept : String(minutes));
  if (isKept && kept !== String(minutes)) choose(kept);
  trace.onChoice("window", (chosen) => {
    localStorage.setItem("tidepool-window", chosen);
    choose(chosen);
  });
  const askSoon = atMostEvery(SOON_MS, ask);
  setInterval(askSoon, TRACE_MS);
  return { trace, askSoon };
}

//: `now`: the part of the page that shows the GPUs; `isShown`: whether news says something that it shows.
export function showPool(now, panel, isShown) {
  const { trace, askSoon } = startTrace(panel);
  const renew = renewer(now);
  const topic = live.watch({
    name: CLUSTER_TOPIC,
    seq: readJson("live-cluster"),
    onState: (_, news) => {
      if (isShown(news)) renew(isUrgent(news));
      if (news.hosts || (news.slots && isUrgent(news))) askSoon();
    },
    onAppend: ({ allocation = [] }) => {
      if (!trace.means()) for (const point of allocation) trace.addStep(point.job, point);
      if (allocation.length) askSoon();
    },
    onSnapshot: () => renew(true),
  });
  followRows(now, renew, (news) => news.reason || news.progress !== undefined);
  followReadings(now);
  setInterval(() => renew(false), READINGS_MS);
  followChanges(now);
  return { topic, trace };
}

//: A tile whose GPU went to somebody else moves, once.
function followChanges(now) {
  const holders = new Map();
  const follow = () => {
    for (const tile of now.querySelectorAll("[data-slot]")) {
      const { slot, job } = tile.dataset;
      tile.classList.toggle("changed", holders.has(slot) && holders.get(slot) !== job);
      holders.set(slot, job);
    }
  };
  now.addEventListener("htmx:afterSwap", follow);
  follow();
}
