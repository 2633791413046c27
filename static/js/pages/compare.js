// Curves and tables of several trainings, kept live: new points come by the topic of each job; what its events do not
// tell (a line that begins, the step at which GPUs changed hands, the words of the tables) is fetched.

import { addPoint, asLine } from "../curves.js";
import { Figure, mayName, placeEnds, readJson, seenOn, themeColour } from "../figure.js";
import { refresher } from "../fresh.js";
import { atMostEvery, fetchJson, live } from "../live.js";
import { isOver } from "../words.js";

const MINUTE = 60;
//: A letter at the end of a line takes this beside the plot.
const LETTER_PX = 32;
//: Many changes at once are one fetch.
const SOON_MS = 1_000;
//: Points of the figure have their seconds with one digit.
const ROUNDED = 0.06;

const page = readJson("live-comparison");
const compared = document.getElementById("compared");
const chart = document.querySelector('[data-chart="comparison"]');

class Comparison extends Figure {
  constructor(panel, figure) {
    super(panel, figure);
    this.take(figure);
    this.draw();
  }

  take(figure) {
    this.figure = figure;
    this.lines = figure.data.map((trace) => asLine(trace, trace.meta.most));
  }

  lineOf(job, title) {
    return this.lines.find(({ trace: { meta }, points }) => meta.job === job && meta.title === title && points.length > 0);
  }

  //: False if one belongs to a line that is not drawn yet. (Of two metrics of the same row, one is drawn.)
  addPoints(job, points) {
    let isNew = false;
    let isKnown = true;
    for (const { name, step, value, seconds } of points) {
      const line = this.lineOf(job, page.rows[name]);
      if (!line) isKnown = false;
      else if (line.trace.meta.metric === name) isNew = addPoint(line, step, value, seconds) || isNew;
    }
    if (isNew) this.request();
    return isKnown;
  }

  knowsChange(job, seconds) {
    const last = this.lineOf(job, "GPUs")?.points.at(-1);
    return last !== undefined && last.at + ROUNDED >= seconds;
  }

  hasData() {
    return this.lines.some(({ points }) => points.length > 0);
  }

  //: What holds its value lasts until where the others of its training are.
  pointsOf({ trace, points }) {
    const last = points.at(-1);
    if (trace.line.shape !== "hv" || !last) return points;
    const ends = this.lines.filter((line) => line.trace.meta.job === trace.meta.job && line.points.length).map((line) => line.points.at(-1));
    const end = ends.reduce((furthest, point) => (point.at > furthest.at ? point : furthest));
    return end.at > last.at ? [...points, { ...end, value: last.value }] : points;
  }

  traces() {
    const ground = themeColour("--surface");
    return this.lines.map((line) => {
      const points = this.pointsOf(line);
      return {
        ...line.trace,
        x: points.map(({ step, at }) => (this.byTime ? at / MINUTE : step)),
        y: points.map(({ value }) => value),
        customdata: undefined,
        line: { ...line.trace.line, color: seenOn(ground, line.trace.line.color) },
      };
    });
  }

  prepare(layout) {
    if (mayName([page.jobs.length])) layout.margin.r = LETTER_PX;
    layout.xaxis.title = { text: this.byTime ? "Minutes since its start" : "Step (optimizer updates)" };
  }

  //: The letter that the legend and the tables have for the training.
  drawn() {
    const ground = themeColour("--surface");
    const ends = this.lines.flatMap((line) => {
      const last = this.pointsOf(line).findLast(({ value }) => value !== null);
      const { name, yaxis, line: look } = line.trace;
      return last ? [{ axis: yaxis, x: this.byTime ? last.at / MINUTE : last.step, value: last.value, text: name[0], colour: seenOn(ground, look.color) }] : [];
    });
    placeEnds(this.panel.querySelector(".chart-ends"), this.canvas, mayName([page.jobs.length]) ? ends : []);
  }

  //: Each training has a time of its own: no moment is shared with another chart.
  toMoment() {
    return null;
  }

  fromMoment() {
    return null;
  }

  //: What is drawn, and what the table and the CSV file say.
  rows() {
    return this.lines.flatMap(({ trace: { meta }, points }) =>
      points.map(({ step, at, value }) => [meta.label, meta.title, step, at, value === null ? "not a number" : value]),
    );
  }
}

const figure = chart && new Comparison(chart, readJson("figure-comparison"));

// --- What is fetched: at most once in a while, and not while nobody looks ----------------------------------------

const askCurves = atMostEvery(SOON_MS, async () => {
  if (!figure) return;
  figure.take(await fetchJson(`${compared.dataset.curves}${location.search}`));
  figure.request();
});
const askTables = refresher(compared, SOON_MS);

// --- Live --------------------------------------------------------------------------------------------------------

function secondsOf(job, at) {
  return (Date.parse(at) - Date.parse(job.started_at ?? job.submitted_at)) / 1000;
}

//: A training that starts, for the first time or anew, has other times and maybe other steps.
function followState(job, state) {
  const isOther = state.started_at !== job.started_at || state.attempt !== job.attempt;
  Object.assign(job, { started_at: state.started_at, attempt: state.attempt, state: state.state });
  if (page.jobs.every((other) => isOver(other.state))) chart.querySelector(".chart-empty").textContent = chart.querySelector(".chart-empty").dataset.over;
  if (isOther) askCurves();
  askTables();
}

function followPoints(job, news) {
  const points = (news.metrics ?? []).filter(({ name }) => name in page.rows).map((point) => ({ ...point, seconds: secondsOf(job, point.at) }));
  const changes = (news.allocation ?? []).map(({ at }) => secondsOf(job, at));
  if (!figure.addPoints(job.job, points) || !changes.every((seconds) => figure.knowsChange(job.job, seconds))) askCurves();
}

if (figure) {
  for (const job of page.jobs) {
    const { job: number, seq, ...state } = job;
    live.watch({
      name: `job.${number}`,
      seq,
      url: `/jobs/${number}/live.json`,
      state,
      onState: (now) => followState(job, now),
      onAppend: (news) => followPoints(job, news),
    });
  }
}
document.documentElement.dataset.ready = "yes";
