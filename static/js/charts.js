// GPUs over time: draws the figures that the server made (`core/charts.py`) and keeps them moving.

import { CONSTANTS } from "./constants.js";
import { asText, Figure, localTime, MAX_POINTS } from "./figure.js";
import { clock, exactTime, pauseInWords, wrapped } from "./words.js";

const MOVE_MS = 1_000;
//: Part of the time that may go into drawing a chart in which only the right edge moves, by at least a pixel.
const MOVING_PART = 0.01;
const MAX_BANDS = 7;
//: Changes that the keyboard reaches; the table has all.
const MAX_STOPS = 100;
//: Rings of more changes than this would smear: then the edges of the bands show them.
const MAX_RINGS = 40;

//: GPUs over time: one band per job, stacked, with a marker and the reason at each change.
export class TideChart extends Figure {
  constructor(panel, figure, { windowMs = null, endOf = () => Date.now() } = {}) {
    super(panel, figure);
    this.windowMs = windowMs;
    this.endOf = endOf;
    this.times = null;
    document.addEventListener("tidepool:times", (event) => this.followTimes(event.detail));
    this.pool = figure.layout.meta.pool;
    this.takeCapacity(figure);
    this.takeHeld(figure);
    this.bands = new Map();
    for (const trace of figure.data.filter((trace) => trace.meta.kind === "band")) this.addBand(trace);
    // No event says that time moves the right edge.
    setInterval(() => this.isMoving() && this.isBehind() && this.request(), MOVE_MS);
    this.stops = new Stops(this);
    this.draw();
  }

  addBand(trace) {
    const steps = trace.x.map((at, index) => ({
      at: Date.parse(at),
      slots: trace.y[index],
      text: trace.customdata[index][0],
      pause: trace.customdata[index][1],
    }));
    this.bands.set(trace.meta.job, { trace, steps });
  }

  //: Steps and colour of a job's band, for the strip above the job's curves.
  band(job) {
    const { steps, trace } = this.bands.get(job);
    return { steps, colour: trace.fillcolor };
  }

  //: `past` is null where only the present one is known.
  takeCapacity(figure) {
    const trace = figure.data.find((one) => one.meta.kind === "capacity");
    this.capacity = figure.layout.meta.capacity;
    this.past = figure.layout.meta.has_past_capacity ? trace.x.map((at, index) => ({ at: Date.parse(at), slots: trace.y[index] })) : null;
  }

  //: Stores how many GPUs were held over time. Held GPUs without a band start or release them.
  takeHeld(figure) {
    const trace = figure.data.find((one) => one.meta.kind === "changing");
    this.held = trace.x.map((at, index) => ({ at: Date.parse(at), slots: trace.y[index] }));
  }

  capacityAt(at) {
    return this.past ? heightAt(this.past, at) : this.capacity;
  }

  //: The line: from the left edge, or from where its history begins.
  capacityLine(start, end) {
    if (!this.past) return { x: [start, end], y: [this.capacity, this.capacity] };
    if (!this.past.length) return { x: [], y: [] };
    const moments = [Math.max(start, this.past[0].at), ...this.past.map(({ at }) => at).filter((at) => at > start && at < end), end];
    return { x: moments, y: moments.map((at) => this.capacityAt(at)) };
  }

  //: A step as live events and the allocation endpoint give it; known ones change nothing.
  addStep(job, point) {
    const band = this.bands.get(job);
    if (!band) return false;
    const step = { at: Date.parse(point.at), slots: point.slots, text: point.reason?.text ?? "", pause: point.pause_ms };
    const known = band.steps.find((other) => other.at === step.at && other.slots === step.slots);
    if (!known) {
      band.steps.push(step);
      band.steps.sort((one, other) => one.at - other.at);
    } else if (step.text && !known.text) {
      // The cluster's topic, which everybody hears, does not say why; the job's own topic does.
      known.text = step.text;
    } else {
      return true;
    }
    this.request(true);
    return true;
  }

  isMoving() {
    return this.held.at(-1)?.slots > 0 || [...this.bands.values()].some(({ steps }) => steps.length > 0 && steps.at(-1).slots > 0);
  }

  //: Whether the right edge has moved by a pixel, or further if a drawing takes long, since the chart was drawn.
  isBehind() {
    const [start, end] = this.range();
    const pixels = ((end - this.drawnUntil) / (end - start)) * this.canvas.clientWidth;
    return !(pixels < 1 || performance.now() - this.drawnAt < this.drawingMs / MOVING_PART);
  }

  //: Curves by time on the same page say which time is looked at.
  followTimes(times) {
    this.times = times;
    this.request();
  }

  range() {
    if (this.times) return this.times;
    const end = this.endOf();
    if (this.windowMs) return [end - this.windowMs, end];
    const starts = [...this.bands.values()].flatMap(({ steps }) => steps.map((step) => step.at));
    const start = Math.min(...starts, end - 10_000);
    return [start - (end - start) * 0.02, end];
  }

  visible([start, end]) {
    const held = [...this.bands.values()].map((band) => ({ ...band, area: area(band.steps, start, end) }));
    return held.filter((band) => band.area > 0);
  }

  rows() {
    const [start, end] = this.range();
    const changes = this.visible([start, end]).flatMap(({ trace, steps }) => steps.map((step) => ({ ...step, label: trace.meta.label })));
    const pool = (this.past ?? []).map((step) => ({ ...step, label: "GPUs in the pool", text: "", pause: null }));
    return [...changes, ...pool]
      .filter(({ at }) => at >= start)
      .sort((one, other) => one.at - other.at)
      .map(({ at, label, slots, text, pause }) => [
        exactTime(new Date(at)),
        label,
        slots,
        text,
        pause === null || pause === undefined ? "" : Math.round(pause),
      ]);
  }

  prepare(layout) {
    const [start, end] = this.range();
    this.drawnUntil = end;
    layout.xaxis.range = [localTime(start), localTime(end)];
    // A job may have had more than it may have now.
    const highest = this.pool ? 0 : Math.max(0, ...[...this.bands.values()].flatMap(({ steps }) => steps.map((step) => step.slots)));
    const capacity = Math.max(this.capacity, ...(this.past ?? []).map(({ slots }) => slots));
    layout.yaxis.range = [0, Math.max(1, capacity, highest) * 1.1];
  }

  traces() {
    const [start, end] = this.range();
    const bands = foldSmall(this.visible([start, end]));
    const grid = times([...bands, { steps: this.past ?? [] }, { steps: this.held }], start, end);
    const line = this.capacityLine(start, end);
    const total = grid.map(() => 0);
    const drawn = [];
    this.changes = { x: [], y: [], text: [], colours: [], words: [] };
    for (const band of bands) {
      const heights = grid.map((at) => heightAt(band.steps, at));
      for (const [index, height] of heights.entries()) total[index] += height;
      drawn.push({ ...band.trace, x: grid.map(localTime), y: heights, customdata: undefined });
      this.mark(this.changes, band, grid, total, start);
    }
    for (const trace of this.figure.data) {
      if (trace.meta.kind === "changing") {
        const heights = grid.map((at, index) => Math.max(0, heightAt(this.held, at) - total[index]));
        if (heights.some(Boolean)) drawn.push({ ...trace, x: grid.map(localTime), y: heights });
        for (const [index, height] of heights.entries()) total[index] += height;
      }
      if (trace.meta.kind === "free")
        drawn.push({ ...trace, x: grid.map(localTime), y: total.map((used, index) => Math.max(0, this.capacityAt(grid[index]) - used)) });
      if (trace.meta.kind === "capacity") drawn.push({ ...trace, name: trace.name.replace(/\d+$/, this.capacity), x: line.x.map(localTime), y: line.y });
      if (trace.meta.kind === "changes") {
        const opacity = this.hasRings() ? 1 : 0; // without rings, too, they say why when one points at them
        const marker = { ...trace.marker, color: this.changes.colours, opacity };
        drawn.push({ ...trace, x: this.changes.x, y: this.changes.y, text: this.changes.text, marker });
      }
    }
    return drawn;
  }

  mark(changes, band, grid, total, start) {
    for (const step of band.steps) {
      if (step.at < start || band.folded) continue;
      const index = grid.indexOf(step.at);
      if (index < 0) continue;
      changes.x.push(localTime(step.at));
      changes.y.push(total[index]);
      changes.colours.push(band.trace.fillcolor);
      changes.text.push(hoverText(band.trace.meta.label, step));
      changes.words.push(changeInWords(band.trace.meta.label, step));
    }
  }

  hasRings() {
    return this.changes.x.length <= MAX_RINGS;
  }

  drawn() {
    this.stops.place();
  }
}

//: The changes as places that the keyboard goes to, one Tab stop for all; each says what hovering says.
class Stops {
  constructor(chart) {
    this.chart = chart;
    this.group = chart.panel.querySelector(".chart-changes");
    this.active = null;
    this.group.addEventListener("keydown", (event) => this.move(event));
    this.group.addEventListener("focusin", (event) => this.show(event.target));
    this.group.addEventListener("focusout", () => window.Plotly.Fx.unhover(chart.canvas));
  }

  place() {
    const { changes, canvas } = this.chart;
    const { xaxis, yaxis } = canvas._fullLayout;
    const first = Math.max(0, changes.x.length - MAX_STOPS);
    const order = changes.x
      .map((_, index) => index)
      .slice(first)
      .sort((one, other) => changes.x[one].localeCompare(changes.x[other]));
    while (this.group.children.length > order.length) this.group.lastChild.remove();
    while (this.group.children.length < order.length) this.group.append(document.createElement("button"));
    order.forEach((index, place) => {
      const button = this.group.children[place];
      button.type = "button";
      button.dataset.point = index;
      button.setAttribute("aria-label", changes.words[index]);
      button.style.left = `${xaxis._offset + xaxis.d2p(changes.x[index]) + canvas.offsetLeft}px`;
      button.style.top = `${yaxis._offset + yaxis.d2p(changes.y[index]) + canvas.offsetTop}px`;
    });
    this.group.hidden = order.length === 0 || canvas.hidden;
    if (!this.group.contains(this.active)) this.active = this.group.lastElementChild;
    for (const button of this.group.children) button.tabIndex = button === this.active ? 0 : -1;
    if (document.activeElement === this.active) this.show(this.active);
  }

  show(button) {
    if (this.active) this.active.tabIndex = -1;
    this.active = button;
    button.tabIndex = 0;
    const curve = this.chart.canvas.data.findIndex((trace) => trace.meta.kind === "changes");
    window.Plotly.Fx.hover(this.chart.canvas, [{ curveNumber: curve, pointNumber: Number(button.dataset.point) }]);
  }

  move(event) {
    const buttons = [...this.group.children];
    const here = buttons.indexOf(event.target);
    const there = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (there === undefined) return;
    event.preventDefault();
    buttons[Math.min(Math.max(there, 0), buttons.length - 1)].focus();
  }
}

function changeInWords(label, step) {
  const parts = [`${label}: ${gpus(step.slots)} at ${clock(new Date(step.at))}`, step.text.replace(/\.$/, ""), pauseInWords(step.pause)];
  return parts.filter(Boolean).join(". ");
}

function gpus(count) {
  return `${Number(count.toFixed(1))} ${count === 1 ? "GPU" : "GPUs"}`;
}

function hoverText(label, step) {
  const head = `<b>${asText(label)}: ${gpus(step.slots)}</b> at ${clock(new Date(step.at))}`;
  return [head, ...wrapped(asText(step.text)), pauseInWords(step.pause)].filter(Boolean).join("<br>");
}

function heightAt(steps, at) {
  return steps.findLast((step) => step.at <= at)?.slots ?? 0;
}

function area(steps, start, end) {
  let sum = 0;
  steps.forEach((step, index) => {
    const from = Math.max(step.at, start);
    const until = Math.min(steps[index + 1]?.at ?? end, end);
    if (until > from) sum += (until - from) * step.slots;
  });
  return sum;
}

//: Few bands can be told apart: the smallest become one grey band.
function foldSmall(bands) {
  if (bands.length <= MAX_BANDS) return bands;
  const order = [...bands].sort((one, other) => other.area - one.area);
  const small = new Set(order.slice(MAX_BANDS - 1));
  const moments = [...new Set([...small].flatMap((band) => band.steps.map((step) => step.at)))].sort((one, other) => one - other);
  const steps = moments.map((at) => ({ at, slots: [...small].reduce((sum, band) => sum + heightAt(band.steps, at), 0) }));
  const [sample] = small;
  const colour = CONSTANTS.severalColour;
  const trace = { ...sample.trace, name: `${small.size} others`, fillcolor: colour, line: { ...sample.trace.line, color: colour } };
  return [...bands.filter((band) => !small.has(band)), { trace, steps, folded: true }];
}

function times(bands, start, end) {
  const moments = new Set([start, end]);
  for (const { steps } of bands) for (const { at } of steps) if (at > start && at < end) moments.add(at);
  const sorted = [...moments].sort((one, other) => one - other);
  return sorted.length <= MAX_POINTS ? sorted : [start, ...sorted.slice(-MAX_POINTS + 1)];
}
