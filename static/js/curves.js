// The curves of a training: rows one above the other that share the axis, by step or by time.

import { Figure, localTime, MAX_POINTS, mayName, placeEnds, themeColour } from "./figure.js";
import { atMostEvery, fetchJson } from "./live.js";

//: Between two rows, as a part of the height.
const ROW_GAP = 0.05;
const LINE_COLOURS = ["--chart-first", "--chart-third", "--chart-fourth"];
const REFETCH_MS = 1_000;
//: Names at the ends of lines take this beside the plot, where it stays wide.
const NAMES_PX = 92;
const WIDE_PX = 640;

export class MetricsChart extends Figure {
  constructor(panel, figure) {
    super(panel, figure);
    this.note = panel.querySelector(".chart-note");
    this.timeRange = null;
    // What else is reported for the first time comes in the same second. Without an answer the next point asks again.
    this.refetch = atMostEvery(REFETCH_MS, async () => {
      this.take(await fetchJson(this.figure.layout.meta.url));
      this.draw();
    });
    document.addEventListener("tidepool:times", (event) => this.followTimes(event.detail));
    this.take(figure);
    this.draw();
  }

  take(figure) {
    this.figure = figure;
    this.lines = new Map(figure.data.map((trace) => [trace.meta.metric, asLine(trace)]));
    this.leftOut = new Set(figure.layout.meta.left_out);
  }

  addPoints(points) {
    let isNew = false;
    for (const { name, step, value, at } of points) {
      const line = this.lines.get(name);
      if (line) isNew = addPoint(line, step, value, Date.parse(at)) || isNew;
      else if (!this.leftOut.has(name)) this.refetch();
    }
    if (isNew) this.request();
  }

  // --- The axis ---

  followTimes(range) {
    this.timeRange = range;
    if (this.byTime) this.request();
  }

  toMoment(value) {
    if (this.byTime) return super.toMoment(value);
    const point = nearest(this.longest(), (candidate) => candidate.step, value);
    return point?.at ?? null;
  }

  fromMoment(at) {
    if (this.byTime) return super.fromMoment(at);
    const points = this.longest();
    if (!points.length || at < points[0].at || at > points.at(-1).at) return null;
    return nearest(points, (candidate) => candidate.at, at).step;
  }

  longest() {
    return [...this.lines.values()].reduce((best, { points }) => (points.length > best.length ? points : best), []);
  }

  //: Rows with a line share the height: Plotly cannot place an axis that has none.
  prepare(layout) {
    if (this.namesEnds()) layout.margin.r = NAMES_PX;
    const filled = new Set(this.filled().map(({ trace }) => trace.yaxis));
    const rows = layout.meta.rows.map((row, index) => ({ ...row, axis: index ? `y${index + 1}` : "y" })).filter(({ axis }) => filled.has(axis));
    const weights = rows.reduce((sum, { weight }) => sum + weight, 0);
    const height = 1 - ROW_GAP * (rows.length - 1);
    layout.meta.rows.forEach((_, index) => {
      const axis = index ? `y${index + 1}` : "y";
      if (!filled.has(axis)) delete layout[axis.replace("y", "yaxis")];
    });
    let top = 1;
    for (const { axis, weight } of rows) {
      const bottom = Math.max(0, top - (height * weight) / weights);
      layout[axis.replace("y", "yaxis")].domain = [bottom, top];
      top = Math.max(0, bottom - ROW_GAP);
    }
    layout.xaxis.anchor = rows.at(-1).axis;
    layout.xaxis.title = { text: this.byTime ? "Time of day" : "Step (optimizer updates)" };
    if (!this.byTime) return;
    Object.assign(layout.xaxis, { type: "date", rangemode: "normal", hoverformat: "%H:%M:%S" });
    if (this.timeRange) layout.xaxis.range = this.timeRange.map(localTime);
  }

  namesEnds() {
    const rows = new Map();
    for (const { trace } of this.filled()) rows.set(trace.yaxis, (rows.get(trace.yaxis) ?? 0) + 1);
    return this.canvas.clientWidth >= WIDE_PX && mayName([...rows.values()]);
  }

  ends() {
    if (!this.namesEnds()) return [];
    return this.filled().flatMap(({ trace, points }) => {
      const value = points.findLast((point) => point.value !== null)?.value;
      return value === undefined ? [] : [{ axis: trace.yaxis, value, text: trace.meta.end, colour: this.colourOf(trace) }];
    });
  }

  colourOf(trace) {
    return themeColour(trace.mode === "lines" ? LINE_COLOURS[trace.meta.place % LINE_COLOURS.length] : "--chart-second");
  }

  filled() {
    return [...this.lines.values()].filter(({ points }) => points.length > 0);
  }

  traces() {
    return this.filled().map(({ trace, points }) => {
      const colour = this.colourOf(trace);
      return {
        ...trace,
        x: points.map(({ step, at }) => (this.byTime ? localTime(at) : step)),
        y: points.map(({ value }) => value),
        customdata: undefined,
        line: { ...trace.line, color: colour },
        marker: { ...trace.marker, color: colour },
      };
    });
  }

  // --- The table ---

  hasData() {
    return this.filled().length > 0;
  }

  columns() {
    return ["Step", ...this.filled().map(({ trace }) => trace.name)];
  }

  rows() {
    const steps = new Map();
    const lines = this.filled();
    for (const [column, { points }] of lines.entries()) {
      for (const { step, value } of points) {
        if (!steps.has(step))
          steps.set(
            step,
            lines.map(() => ""),
          );
        steps.get(step)[column] = value === null ? "not a number" : Number(value.toPrecision(5));
      }
    }
    return [...steps].sort(([one], [other]) => one - other).map(([step, values]) => [step, ...values]);
  }

  drawn() {
    placeEnds(this.panel.querySelector(".chart-ends"), this.canvas, this.ends());
    const every = Math.max(1, ...[...this.lines.values()].map((line) => line.every));
    const parts = [every > 1 ? `Shown: one step in ${every}.` : "", this.leftOut.size ? `Not drawn: ${[...this.leftOut].join(", ")}.` : ""];
    this.note.textContent = parts.filter(Boolean).join(" ");
  }
}

export function asLine(trace, most = MAX_POINTS) {
  const points = trace.x.map((step, index) => ({ step, value: trace.y[index], at: trace.customdata[index] }));
  return { trace, points, every: trace.meta.every, most, skipped: 0 };
}

//: Of `every` values that come one is kept; the newest is shown whatever it is. False if it is known.
export function addPoint(line, step, value, at) {
  const last = line.points.at(-1)?.step ?? -1;
  if (step <= last) return false;
  if (line.skipped > 0) line.points.pop();
  line.skipped = (line.skipped + 1) % line.every;
  line.points.push({ step, value, at });
  if (line.points.length > 1.1 * line.most) {
    line.points = line.points.filter((_, index) => index % 2 === 0 || index === line.points.length - 1);
    line.every *= 2;
  }
  return true;
}

function nearest(points, key, wanted) {
  let low = 0;
  let high = points.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (key(points[middle]) < wanted) low = middle + 1;
    else high = middle;
  }
  const [one, other] = [points[low - 1], points[low]];
  return one && wanted - key(one) < key(other) - wanted ? one : other;
}
