// The points of a line and what curves are drawn over: steps, times, epochs or samples; raw, or smoothed.

import { MAX_POINTS } from "./figure.js";
import { fetchJson } from "./live.js";

//: Largest page that the API has.
const PAGE = 10_000;
export const NO_FILE = "The CSV file was not made: the server did not answer. Try again.";

//: All values of a training's metric, as the server has them.
export async function allPoints(job, metric) {
  const points = [];
  let address = `/api/v1/jobs/${job}/metrics/?${new URLSearchParams({ name: metric, every: 1, limit: PAGE })}`;
  while (address) {
    const { results, next } = await fetchJson(address);
    points.push(...results);
    address = next && new URL(next).pathname + new URL(next).search;
  }
  return points;
}

const LAST = Number.POSITIVE_INFINITY;

//: Points of a drawn line: two of each span of 2 × `every`, as the server takes them.
const PER_SPAN = 2;

//: `customdata` of a trace has [when, epoch] of each point. `whole`: number of points of the spans that are complete; `span`: the
//: points since then.
export function asLine(trace, most = MAX_POINTS) {
  const points = trace.x.map((step, index) => ({ step, value: trace.y[index], at: trace.customdata[index][0], epoch: trace.customdata[index][1] }));
  return { trace, points, every: trace.meta.every, most, whole: points.length, span: [] };
}

//: The least and the greatest of these points, in their order; a value that is not a number counts as the least. Same rule as
//: `jobs.queries.metrics`.
function ends(points) {
  let [least, greatest] = [points[0], points[0]];
  for (const point of points.slice(1)) {
    if (least.value !== null && (point.value === null || point.value < least.value)) least = point;
    if (greatest.value === null || (point.value !== null && point.value >= greatest.value)) greatest = point;
  }
  if (least === greatest) return [least];
  return least.step < greatest.step ? [least, greatest] : [greatest, least];
}

function halved(points) {
  const kept = [];
  for (let first = 0; first < points.length; first += 2 * PER_SPAN) kept.push(...ends(points.slice(first, first + 2 * PER_SPAN)));
  return kept;
}

//: Says that lines are thinned, or "".
export function thinnedWords(lines) {
  const every = Math.max(1, ...lines.map((line) => line.every));
  return every > 1 ? `Shown: the least and the greatest of every ${PER_SPAN * every} values. The CSV file has all.` : "";
}

//: Markers of more points than this would hide the lines below them.
const MOST_MARKERS = 60;

//: One point alone makes no line.
export function modeOf(trace, points) {
  if (points.length === 1) return "lines+markers";
  return points.length > MOST_MARKERS ? "lines" : trace.mode;
}

//: Adds a point unless it is known (then returns false). Of each span of points two are kept; the newest is always shown.
export function addPoint(line, { step, value, at, epoch }) {
  const last = line.points.at(-1)?.step ?? -1;
  if (step <= last) return false;
  const point = { step, value, at, epoch };
  line.span.push(point);
  line.points.length = line.whole;
  line.points.push(...ends(line.span));
  if (line.span.length >= PER_SPAN * line.every) Object.assign(line, { whole: line.points.length, span: [] });
  else if (line.points.at(-1) !== point) line.points.push(point);
  if (line.whole > 1.1 * line.most) {
    const points = halved(line.points);
    Object.assign(line, { points, every: 2 * line.every, whole: points.length, span: [] });
  }
  return true;
}

//: Epochs as a straight line over steps, [of one step, at step 0], from where they begin; null until a second one has.
export function epochsOf(points) {
  let epoch = points[0]?.epoch;
  const begins = [];
  for (const point of points) {
    if (point.epoch === epoch) continue;
    epoch = point.epoch;
    begins.push(point);
  }
  const [first, last] = begins.length > 1 ? [begins[0], begins.at(-1)] : [points[0], begins[0]];
  if (!first || !last || last.step <= first.step) return null;
  const each = (last.epoch - first.epoch) / (last.step - first.step);
  return [each, last.epoch - each * last.step];
}

//: An exponential mean, as TensorBoard draws it: without the pull of the first values, and of many points as much as of few.
export function smoothed(values, weight) {
  let sum = 0;
  let share = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = sum * weight + value * (1 - weight);
    share = share * weight + 1 - weight;
    return sum / share;
  });
}

//: A line at 0 that was high once is better seen by its digits.
export function spansDecades(values) {
  const numbers = values.filter((value) => value !== null);
  const least = numbers.reduce((one, other) => Math.min(one, other), LAST);
  const most = numbers.reduce((one, other) => Math.max(one, other), 0);
  return least > 0 && most / least >= 20;
}

//: Settings of a value axis. Plotly's own choice labels every digit of one to three decades, which overlap in a small chart:
//: 1, 2 and 5 fit.
export function valueAxis(isLog, values) {
  if (!isLog) return { type: "linear", uirevision: "linear", dtick: null, ...constantRange(values) };
  const logs = values.filter((value) => value > 0).map(Math.log10);
  const decades = logs.reduce((most, value) => Math.max(most, value)) - logs.reduce((least, value) => Math.min(least, value));
  return { type: "log", uirevision: "log", tickformat: "~g", dtick: decades >= 1 && decades < 3 ? "D2" : null };
}

//: Around a value that never changes Plotly would draw from -1 to 1.
function constantRange(values) {
  const [value] = values;
  return value && values.every((other) => Math.abs(other - value) <= 1e-6 * Math.abs(value)) ? { autorangeoptions: { include: [0, 2 * value] } } : {};
}

//: Sentence about the values that a log axis cannot show.
export function notOnLogAxis(lines) {
  const count = lines.flatMap(({ points }) => points).filter(({ value }) => value !== null && value <= 0).length;
  return count ? `${count} ${count === 1 ? "value of 0 or less is" : "values of 0 or less are"} not shown on a log axis.` : "";
}

export function nearest(points, key, wanted) {
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
