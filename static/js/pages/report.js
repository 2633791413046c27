// Charts of a report: frozen points, drawn as on the comparison of trainings, without live updates.

import { Choices } from "../choices.js";
import { Figure, readJson, seenOn, themeColour } from "../figure.js";
import { asLine, epochsOf, notOnLogAxis, smoothed, valueAxis } from "../lines.js";

const MINUTE = 60;
const RAW_OPACITY = 0.2;
const TITLES = { step: "Step", time: "Minutes since start", epoch: "Epochs done" };
const READOUTS = { step: "Step %{x}", time: "%{x:.1f} min", epoch: "%{x:.2f} epochs" };
const BY_FINGER = matchMedia("(pointer: coarse)");

const section = document.querySelector(".report");
const charts = [];
let choices = null;

class Frozen extends Figure {
  constructor(panel, figure) {
    super(panel, figure);
    this.lines = figure.data.map((trace) => asLine(trace)).filter(({ points }) => points.length > 0);
    this.epochs = new Map(this.lines.map(({ trace, points }) => [trace.meta.job, epochsOf(points)]));
  }

  hasData() {
    return this.lines.length > 0;
  }

  config() {
    return { ...super.config(), doubleClick: "reset" };
  }

  hasEpochs() {
    return [...this.epochs.values()].some(Boolean);
  }

  //: Falls back to steps when the chart does not have the chosen axis: a training without epochs still has steps.
  axis() {
    return choices.axis === "epoch" && !this.hasEpochs() ? "step" : choices.axis in TITLES ? choices.axis : "step";
  }

  placeOf(job) {
    const axis = this.axis();
    const epochs = this.epochs.get(job);
    if (axis === "time") return ({ at }) => at / MINUTE;
    if (axis === "epoch") return epochs && (({ step }) => epochs[0] * step + epochs[1]);
    return ({ step }) => step;
  }

  values() {
    return this.lines.flatMap(({ points }) => points.map(({ value }) => value));
  }

  traces() {
    const ground = themeColour("--surface");
    const weight = this.figure.layout.meta.may_be_smooth ? choices.smoothing : 0;
    return this.lines.flatMap(({ trace, points }) => {
      const place = this.placeOf(trace.meta.job);
      if (!place) return [];
      const raw = points.map(({ value }) => value);
      const line = { ...trace.line, color: seenOn(ground, trace.line.color) };
      const look = { ...trace, x: points.map(place), customdata: undefined, line, mode: points.length > 1 ? "lines" : "markers" };
      if (!weight) return [{ ...look, y: raw }];
      const faint = { ...look, y: raw, opacity: RAW_OPACITY, hoverinfo: "skip", hovertemplate: undefined, showlegend: false };
      return [{ ...look, y: smoothed(raw, weight) }, faint];
    });
  }

  prepare(layout) {
    const values = this.values();
    this.isLog = layout.meta.may_be_log && choices.isLog(values) && values.some((value) => value > 0);
    const axis = this.axis();
    layout.dragmode = BY_FINGER.matches ? false : choices.drag;
    layout.uirevision = "kept";
    Object.assign(layout.xaxis, { title: { text: TITLES[axis] }, fixedrange: BY_FINGER.matches, uirevision: axis });
    layout.xaxis.unifiedhovertitle = { text: READOUTS[axis] };
    Object.assign(layout.yaxis, valueAxis(this.isLog, values), { fixedrange: BY_FINGER.matches });
  }

  drawn() {
    this.panel.querySelector(".chart-note").textContent = this.isLog ? notOnLogAxis(this.lines) : "";
  }

  //: No shared cursor: charts of one report may have different axes.
  toMoment() {
    return null;
  }

  rows() {
    return this.lines.flatMap(({ trace: { meta }, points }) =>
      points.map(({ step, at, value }) => [meta.label, step, at, value === null ? "not a number" : value]),
    );
  }

  fileName() {
    return this.panel.querySelector("h2").textContent;
  }
}

function drawAll() {
  for (const chart of charts) chart.draw();
  choices.showScale(charts.some(({ isLog }) => isLog));
}

function showAll() {
  for (const { canvas } of charts) if (canvas.layout) window.Plotly.relayout(canvas, { "yaxis.autorange": true, "xaxis.autorange": true });
}

function startCharts(figures) {
  choices = new Choices(section, { changed: drawAll, whole: showAll });
  for (const [name, figure] of Object.entries(figures)) charts.push(new Frozen(section.querySelector(`[data-chart="${name}"]`), figure));
  choices.axisOf(new Set(["step", "time", ...(charts.some((chart) => chart.hasEpochs()) ? ["epoch"] : [])]));
  choices.showWhole(true);
  drawAll();
}

const figures = document.getElementById("report-charts") ? readJson("report-charts") : {};
if (Object.keys(figures).length) startCharts(figures);
document.documentElement.dataset.ready = "yes";
