// The curves of a training: rows one above the other on one axis, below a strip with the GPUs that it had.

import { ChartOrder } from "./chart_order.js";
import { Choices } from "./choices.js";
import { asText, Figure, localTime, mayName, placeEnds, seenOn, themeColour } from "./figure.js";
import { addPoint, allPoints, asLine, epochsOf, modeOf, NO_FILE, nearest, notOnLogAxis, smoothed, thinnedWords, valueAxis } from "./lines.js";
import { atMostEvery, fetchJson } from "./live.js";
import { say } from "./toasts.js";
import { clock, pauseInWords, wrapped } from "./words.js";

//: Heights of the strip, and of the title above each row.
const STRIP_PX = 56;
const TITLE_PX = 22;
const STRIP = "y20";
const STRIP_TITLE = "<b>GPUs</b>";
const STRIP_HINT = " <span>(click for the reasons)</span>";
//: Resizes that are told apart; of more the strip tells.
const MOST_BANDS = 60;
const LINE_COLOURS = ["--chart-first", "--chart-third", "--chart-fourth"];
const RAW_OPACITY = 0.28;
const REFETCH_MS = 1_000;
//: Names at the ends of lines take this beside the plot, where it stays wide.
const NAMES_PX = 92;
const WIDE_PX = 640;
const TITLES = { step: "Step (optimizer updates)", time: "Time of day", epoch: "Epochs done", samples: "Samples (steps × effective batch size)" };
//: Formats of the readout, by axis.
const READOUTS = { step: "Step %{x}", time: "%{x|%H:%M:%S}", epoch: "%{x:.2f} epochs", samples: "%{x:,} samples" };
//: Dragging a finger scrolls the page.
const BY_FINGER = matchMedia("(pointer: coarse)");

//: A row for each step that any of the lines has: the step, and the value of each line.
function rowsByStep(lines) {
  const steps = new Map();
  for (const [column, points] of lines.entries()) {
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

export class MetricsChart extends Figure {
  //: `gpus()`: {steps, colour} of the GPUs that it had, steps as in a band of TideChart.
  constructor(panel, figure, gpus) {
    super(panel, figure);
    this.gpus = gpus;
    this.note = panel.querySelector(".chart-note");
    this.order = new ChartOrder(() => this.arrange());
    this.order.unchosen.className = "chart-empty";
    this.empty.after(this.order.unchosen);
    this.choices = new Choices(panel, { changed: (name) => this.follow(name), whole: () => this.showAll() });
    // Other metrics that are reported for the first time arrive within the same second. After a failure the next point asks again.
    this.refetch = atMostEvery(REFETCH_MS, async () => {
      this.take(await fetchJson(this.figure.layout.meta.url));
      this.draw();
    });
    this.take(figure);
    this.draw();
  }

  take(figure) {
    this.figure = figure;
    this.lines = new Map(figure.data.map((trace) => [trace.meta.metric, asLine(trace)]));
    this.leftOut = new Set(figure.layout.meta.left_out);
    this.order.take(figure.layout.meta.rows.map(({ title }) => title));
    this.makeRoom();
  }

  //: Height for the rows that are seen.
  makeRoom() {
    const seen = this.figure.layout.meta.rows.filter(({ title }) => this.order.isSeen(title));
    this.panel.querySelector(".chart-frame").style.setProperty("--rows", Math.max(1, seen.length));
  }

  arrange() {
    this.makeRoom();
    this.draw();
  }

  addPoints(points) {
    let isNew = false;
    for (const { name, step, value, at, epoch } of points) {
      const line = this.lines.get(name);
      if (line) isNew = addPoint(line, { step, value, at: Date.parse(at), epoch }) || isNew;
      else if (!this.leftOut.has(name)) this.refetch();
    }
    if (isNew) this.request();
  }

  draw() {
    super.draw();
    const isUnchosen = this.filled().length > 0 && this.drawnLines.length === 0;
    this.order.unchosen.hidden = !isUnchosen;
    this.empty.hidden ||= isUnchosen;
  }

  // --- Choices of the person ---

  follow(name) {
    if (name === "drag") window.Plotly.relayout(this.canvas, { dragmode: this.choices.drag });
    else this.draw();
  }

  showAll() {
    const axes = Object.keys(this.canvas.layout).filter((key) => /^[xy]axis/.test(key) && key !== axisKey(STRIP));
    window.Plotly.relayout(this.canvas, Object.fromEntries(axes.map((key) => [`${key}.autorange`, true])));
  }

  config() {
    return { ...super.config(), doubleClick: "reset" };
  }

  //: Collects the axes that some drawn line has values for.
  settle() {
    this.drawnLines = this.filled().filter((line) => this.order.isSeen(this.rowOf(line).title));
    this.epochs = epochsOf(this.longest());
    const each = this.figure.layout.meta.samples_per_step;
    const axes = ["step", "time", this.epochs && "epoch", each && "samples"];
    this.axis = this.choices.axisOf(new Set(axes.filter(Boolean)));
    const [factor, shift] = { epoch: this.epochs, samples: [each, 0] }[this.axis] ?? [1, 0];
    this.place = this.axis === "time" ? ({ at }) => localTime(at) : ({ step }) => factor * step + shift;
    this.toStep = (value) => (value - shift) / factor;
    this.settleScale();
  }

  valuesAt(axis) {
    return this.drawnLines.filter(({ trace }) => trace.yaxis === axis).flatMap(({ points }) => points.map(({ value }) => value));
  }

  //: One scale for all rows that may be logarithmic: what the buttons say holds for the loss. Unless the person chose, the
  //: first of these rows decides. A row without a value above 0 stays linear.
  settleScale() {
    const drawn = this.figure.layout.meta.rows.map((row, index) => ({ ...row, values: this.valuesAt(axisOf(index)), axis: axisOf(index) }));
    const possible = drawn.filter(({ may_be_log: mayBeLog, values }) => mayBeLog && values.length > 0);
    const positive = possible.filter(({ values }) => values.some((value) => value > 0));
    const isLog = this.choices.isLog(positive[0]?.values ?? []);
    this.logRows = new Set(isLog ? positive.map(({ axis }) => axis) : []);
    this.linearTitles = isLog ? possible.filter((row) => !positive.includes(row)).map(({ title }) => title) : [];
    this.choices.showScale(this.logRows.size > 0);
  }

  // --- The axes ---

  toMoment(value) {
    if (this.axis === "time") return super.toMoment(value);
    return nearest(this.longest(), ({ step }) => step, this.toStep(value))?.at ?? null;
  }

  fromMoment(at) {
    if (this.axis === "time") return super.fromMoment(at);
    const points = this.longest();
    if (!points.length || at < points[0].at || at > points.at(-1).at) return null;
    return this.place(nearest(points, (point) => point.at, at));
  }

  longest() {
    return [...this.lines.values()].reduce((best, { points }) => (points.length > best.length ? points : best), []);
  }

  //: Title of the horizontal axis. A script that only prints its steps may count anything by them.
  axisTitle() {
    const { countsUpdates } = document.getElementById("job").dataset;
    return this.axis === "step" && countsUpdates !== "true" ? "Step" : TITLES[this.axis];
  }

  prepare(layout) {
    this.placeRows(layout);
    if (this.namesEnds()) layout.margin.r = NAMES_PX;
    layout.margin.t = TITLE_PX;
    // The zoom stays while points arrive; it means nothing on another axis.
    layout.uirevision = "kept";
    layout.dragmode = BY_FINGER.matches ? false : this.choices.drag;
    Object.assign(layout.xaxis, { title: { text: this.axisTitle() }, fixedrange: BY_FINGER.matches, uirevision: this.axis });
    layout.xaxis.unifiedhovertitle = { text: READOUTS[this.axis] };
    if (this.axis === "time") layout.xaxis.type = "date";
    layout.shapes = this.resizes();
  }

  //: Rows with a line share the height that the strip leaves: Plotly cannot place an axis that has none.
  placeRows(layout) {
    const filled = new Set(this.drawnLines.map(({ trace }) => trace.yaxis));
    const rows = layout.meta.rows.map((row, index) => ({ ...row, axis: axisOf(index) }));
    const order = this.order.sorted();
    const drawn = rows.filter(({ axis }) => filled.has(axis)).sort((one, other) => order.indexOf(one.title) - order.indexOf(other.title));
    for (const { axis } of rows) if (!filled.has(axis)) delete layout[axisKey(axis)];
    layout.annotations = layout.annotations.filter(({ yref }) => filled.has(yref.split(" ")[0]));
    const height = Math.max(1, this.canvas.clientHeight - layout.margin.b - TITLE_PX);
    const strip = this.hasStrip() ? STRIP_PX + TITLE_PX : 0;
    const weights = drawn.reduce((sum, { weight }) => sum + weight, 0);
    const each = (height - strip - TITLE_PX * (drawn.length - 1)) / weights;
    let top = height - strip;
    for (const { axis, weight } of drawn) {
      const key = axisKey(axis);
      Object.assign(layout[key], { domain: [Math.max(0, top - each * weight), top].map((px) => px / height), fixedrange: BY_FINGER.matches });
      Object.assign(layout[key], valueAxis(this.logRows.has(axis), this.valuesAt(axis)));
      top -= each * weight + TITLE_PX;
    }
    layout.xaxis.anchor = drawn.at(-1).axis;
    if (strip) this.placeStrip(layout, height);
  }

  // --- The GPUs that it had ---

  //: One that always had as many needs no strip: a word says so.
  hasStrip() {
    return sizesOf(this.gpus().steps).length > 1;
  }

  placeStrip(layout, height) {
    const most = Math.max(...this.gpus().steps.map(({ slots }) => slots));
    layout[axisKey(STRIP)] = {
      domain: [1 - STRIP_PX / height, 1],
      range: [0, most * 1.08],
      tickvals: [0, most],
      anchor: "x",
      zeroline: false,
    };
    layout.annotations.push({ ...layout.annotations[0], yref: `${STRIP} domain`, text: STRIP_TITLE + STRIP_HINT });
  }

  forPicture(layout) {
    for (const annotation of layout.annotations) annotation.text = annotation.text.replace(STRIP_HINT, "");
  }

  stripTrace() {
    const { steps, colour } = this.gpus();
    const points = this.stripPoints(steps);
    const shade = seenOn(themeColour("--surface"), colour);
    return {
      type: "scatter",
      mode: "lines",
      name: "GPUs",
      meta: { kind: "strip" },
      x: points.map(this.place),
      y: points.map(({ at }) => sizeAt(steps, at)?.slots ?? 0),
      text: points.map(({ at }) => reasonOf(sizeAt(steps, at))),
      hovertemplate: "%{y}%{text}",
      line: { shape: "hv", width: 1.5, color: shade },
      fill: "tozeroy",
      fillcolor: `${shade}38`,
      yaxis: STRIP,
      showlegend: false,
    };
  }

  //: Points of the strip at the points of the curves, so that the readout shows both; over time also the stretches without GPUs.
  stripPoints(steps) {
    const points = this.longest();
    if (this.axis !== "time") return points;
    const [first, last] = [points[0].at, points.at(-1).at];
    return [...points, ...steps.filter(({ at }) => at > first && at < last)].sort((one, other) => one.at - other.at);
  }

  //: Every second size has a ground of its own, in all rows.
  resizes() {
    const points = this.longest();
    if (!this.hasStrip() || !points.length) return [];
    const places = sizesOf(this.gpus().steps)
      .map(({ at }) => Math.min(Math.max(at, points[0].at), points.at(-1).at))
      .concat(points.at(-1).at)
      .slice(-MOST_BANDS)
      .map((at) => this.place(this.axis === "time" ? { at } : points.find((point) => point.at >= at)));
    const ground = { type: "rect", yref: "paper", y0: 0, y1: 1, layer: "below", fillcolor: themeColour("--chart-band"), line: { width: 0 } };
    return places.slice(1).flatMap((x1, index) => (index % 2 && places[index] !== x1 ? [{ ...ground, x0: places[index], x1 }] : []));
  }

  // --- The lines ---

  namesEnds() {
    const rows = new Map();
    for (const { trace } of this.drawnLines) rows.set(trace.yaxis, (rows.get(trace.yaxis) ?? 0) + 1);
    return this.canvas.clientWidth >= WIDE_PX && mayName([...rows.values()]);
  }

  ends() {
    if (!this.namesEnds()) return [];
    return this.drawnLines
      .filter(({ trace }) => !this.takenAway.has(trace.meta.metric))
      .flatMap((line) => {
        const value = this.valuesOf(line).findLast((one) => one !== null);
        return value === undefined ? [] : [{ axis: line.trace.yaxis, value, text: line.trace.meta.end, colour: this.colourOf(line.trace) }];
      });
  }

  colourOf(trace) {
    return themeColour(trace.mode === "lines" ? LINE_COLOURS[trace.meta.place % LINE_COLOURS.length] : "--chart-second");
  }

  filled() {
    return [...this.lines.values()].filter(({ points }) => points.length > 0);
  }

  traces() {
    const lines = this.drawnLines.flatMap((line) => (this.isSmooth(line) ? [this.lineTrace(line), this.rawTrace(line)] : [this.lineTrace(line)]));
    return this.hasStrip() ? [...lines, this.stripTrace()] : lines;
  }

  rowOf({ trace }) {
    return this.figure.layout.meta.rows[Number(trace.yaxis.slice(1) || 1) - 1];
  }

  //: Returns whether a line is smoothed; a metric that is measured only now and then is not.
  isSmooth(line) {
    return this.choices.smoothing > 0 && this.rowOf(line).may_be_smooth && line.trace.mode === "lines";
  }

  valuesOf(line) {
    const values = line.points.map(({ value }) => value);
    return this.isSmooth(line) ? smoothed(values, this.choices.smoothing) : values;
  }

  lineTrace(line) {
    const { trace, points } = line;
    const colour = this.colourOf(trace);
    return {
      ...trace,
      uid: trace.meta.metric,
      mode: modeOf(trace, points),
      x: points.map(this.place),
      y: this.valuesOf(line),
      customdata: undefined,
      line: { ...trace.line, color: colour },
      marker: { ...trace.marker, color: colour },
    };
  }

  rawTrace(line) {
    const raw = { ...this.lineTrace(line), uid: `${line.trace.meta.metric} raw`, y: line.points.map(({ value }) => value) };
    return { ...raw, opacity: RAW_OPACITY, hoverinfo: "skip", hovertemplate: undefined, showlegend: false };
  }

  // --- The table ---

  hasData() {
    this.settle();
    return this.drawnLines.length > 0;
  }

  columns() {
    return ["Step", ...this.filled().map(({ trace }) => trace.name)];
  }

  rows() {
    return rowsByStep(this.filled().map(({ points }) => points));
  }

  //: All values, where the lines are thinned: a file is for other programs.
  async saveCsv() {
    const lines = this.filled();
    if (lines.every(({ every }) => every === 1)) return super.saveCsv();
    try {
      const whole = await Promise.all(lines.map(({ trace: { meta } }) => allPoints(this.figure.layout.meta.job, meta.metric)));
      this.saveRows(rowsByStep(whole));
    } catch {
      say(NO_FILE, { kind: "error" });
    }
  }

  drawn() {
    this.listen();
    this.showZoom();
    placeEnds(this.panel.querySelector(".chart-ends"), this.canvas, this.ends());
    const parts = [
      thinnedWords([...this.lines.values()]),
      this.leftOut.size ? `Not drawn: ${[...this.leftOut].join(", ")}.` : "",
      this.linearTitles.length ? `Linear, without values above 0: ${this.linearTitles.join(", ")}.` : "",
      notOnLogAxis(this.drawnLines.filter(({ trace }) => this.logRows.has(trace.yaxis) && !this.takenAway.has(trace.meta.metric))),
    ];
    this.note.textContent = parts.filter(Boolean).join(" ");
  }

  //: A canvas hears once it was drawn.
  listen() {
    if (this.isListening) return;
    this.isListening = true;
    this.canvas.on("plotly_relayout", () => this.drawn());
    this.canvas.on("plotly_click", ({ event }) => {
      const strip = this.canvas._fullLayout[axisKey(STRIP)];
      const place = event.clientY - this.canvas.getBoundingClientRect().top - (strip?._offset ?? 0);
      if (strip && place >= 0 && place <= strip._length) document.dispatchEvent(new CustomEvent("tidepool:gpus"));
    });
  }

  showZoom() {
    const { _fullLayout: shown, layout } = this.canvas;
    const zoomed = Object.keys(layout).filter((key) => /^[xy]axis/.test(key) && key !== axisKey(STRIP) && !shown[key].autorange);
    this.choices.showWhole(zoomed.length > 0);
    const times = this.axis === "time" ? shown.xaxis.range.map((at) => super.toMoment(shown.xaxis.d2c(at))) : null;
    if (String(times) !== String(this.times)) document.dispatchEvent(new CustomEvent("tidepool:times", { detail: times }));
    this.times = times;
  }
}

//: Plotly's names of the n-th axis, and of where a layout has it.
function axisOf(index) {
  return index ? `y${index + 1}` : "y";
}

function axisKey(axis) {
  return axis.replace("y", "yaxis");
}

//: Each size that it had, from when on; before it began and at its end it has none.
export function sizesOf(steps) {
  const sizes = steps.filter(({ slots }, index) => slots !== (steps[index - 1]?.slots ?? 0));
  return sizes.at(-1)?.slots === 0 ? sizes.slice(0, -1) : sizes;
}

function sizeAt(steps, at) {
  return steps.findLast((step) => step.at <= at);
}

function reasonOf(step) {
  if (!step) return "";
  const head = [`since ${clock(new Date(step.at))}`, pauseInWords(step.pause)].filter(Boolean).join(", ");
  return [` ${head}`, ...wrapped(asText(step.text))].join("<br>");
}
