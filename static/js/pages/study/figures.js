// Figures of a study's page: the server makes them (studies/figures.py), the browser adds the theme's colours and the choices of
// the person. `meta` of a figure has the words beside it, and its table.

import { asText, Figure, mayName, placeEnds, seenOn, themeColour } from "../../figure.js";
import { spansDecades, valueAxis } from "../../lines.js";

const EMPTY = { data: [], layout: { font: {}, meta: { note: "", empty: "", columns: [], rows: [] } } };
//: Kind of a trace -> its colour in the theme.
const COLOURS = {
  complete: "--chart-first",
  pruned: "--chart-ink",
  failed: "--chart-wrong",
  best: "--chart-second",
  importance: "--chart-first",
};
//: Room beside the plot for names at the ends of lines.
const NAMES_PX = 64;
//: Width below which a logarithmic axis has few labels.
const NARROW_PX = 480;

export class StudyFigure extends Figure {
  constructor(panel) {
    super(panel, EMPTY);
    this.isLoaded = false;
    this.note = panel.querySelector(".chart-note");
  }

  take(figure) {
    this.figure = figure;
    this.isLoaded = true;
    this.note.textContent = figure.layout.meta.note;
    this.empty.textContent = figure.layout.meta.empty;
    this.draw();
  }

  //: Until the figures are there the panels are blank: nothing says yet that there is nothing.
  draw() {
    if (this.isLoaded) super.draw();
  }

  hasData() {
    return this.figure.data.some(({ x }) => x.length > 0);
  }

  columns() {
    return this.figure.layout.meta.columns;
  }

  rows() {
    return this.figure.layout.meta.rows;
  }

  //: The axes are no times: the page's common cursor has no place here.
  momentAt() {
    return null;
  }

  showCursor() {}

  traces() {
    return this.figure.data.filter(({ x }) => x.length > 0).map(coloured);
  }

  //: A metric that is to fall, and does so by orders of magnitude, has a logarithmic axis.
  prepare(layout) {
    const values = this.figure.data.filter(({ yaxis }) => yaxis !== "y2").flatMap(({ y }) => y.filter((value) => value !== null));
    const mayBeLog = this.panel.closest("[data-goal]").dataset.goal === "minimize";
    if (values.length) Object.assign(layout.yaxis, valueAxis(mayBeLog && spansDecades(values), values));
  }
}

function coloured(trace) {
  const colour = themeColour(COLOURS[trace.meta.kind] ?? "--chart-first");
  const drawn = { ...trace };
  if (trace.text) drawn.text = trace.text.map((words) => asText(words).replaceAll("\n", "<br>"));
  if (trace.type === "bar") return { ...drawn, marker: { color: colour } };
  // The legend takes the colour of a trace from its line.
  drawn.line = { ...trace.line, color: colour };
  if (trace.mode === "markers") drawn.marker = { ...trace.marker, color: colour, line: { ...trace.marker.line, color: colour } };
  return drawn;
}

export class ImportanceFigure extends StudyFigure {
  prepare() {}
}

//: The value against the one parameter that the person chose.
export class SliceFigure extends StudyFigure {
  constructor(panel) {
    super(panel);
    this.choice = panel.querySelector("[data-parameter]");
    this.choice.addEventListener("change", () => this.draw());
  }

  hasData() {
    return super.hasData() && this.choice.value in this.figure.layout.meta.parameters;
  }

  placesOf(trace) {
    return trace.meta.xs[this.choice.value];
  }

  places() {
    return this.figure.data.flatMap((trace) => this.placesOf(trace));
  }

  traces() {
    return super.traces().map((trace) => ({ ...trace, x: this.placesOf(trace).map(shown) }));
  }

  prepare(layout) {
    super.prepare(layout);
    const name = this.choice.value;
    const axis = layout.meta.parameters[name];
    const log = axis.type === "log" ? valueAxis(true, this.places()) : {};
    if (axis.type === "log" && this.canvas.clientWidth < NARROW_PX) Object.assign(log, fewTicks(this.places()));
    Object.assign(layout.xaxis, axis, log, { title: { text: asText(name) }, categoryarray: axis.categoryarray?.map(shown) });
  }

  columns() {
    return ["Trial", "State", this.choice.value, this.figure.layout.meta.metric];
  }

  rows() {
    const rows = this.figure.data.flatMap((trace) => this.placesOf(trace).map((place, index) => [trace.meta.trials[index], trace.name, place, trace.y[index]]));
    return rows.sort(([one], [other]) => one - other);
  }
}

//: Ticks of a narrow logarithmic axis: powers of ten, or at least two values that the data reach from end to end.
function fewTicks(places) {
  const values = places.filter((value) => value > 0);
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const powers = [];
  for (let power = Math.ceil(Math.log10(least)); power <= Math.floor(Math.log10(most)); power += 1) powers.push(10 ** power);
  return { tickmode: "array", tickvals: powers.length > 1 ? powers : [...new Set([least, most].map((value) => Number(value.toPrecision(2))))] };
}

//: A place on an axis: a number, or a word that Plotly must not read as markup.
function shown(place) {
  return typeof place === "string" ? asText(place) : place;
}

export class CurvesFigure extends StudyFigure {
  traces() {
    const ground = themeColour("--surface");
    return this.figure.data.map((trace) => ({
      ...trace,
      mode: trace.x.length === 1 ? "markers" : "lines",
      line: { ...trace.line, color: seenOn(ground, trace.line.color), width: trace.meta.runs ? 2.5 : 1.5 },
      marker: { color: seenOn(ground, trace.line.color) },
    }));
  }

  prepare(layout) {
    super.prepare(layout);
    if (this.namesEnds()) layout.margin.r = NAMES_PX;
  }

  namesEnds() {
    return mayName([this.figure.data.length]);
  }

  drawn() {
    const ends = this.namesEnds() ? this.shownTraces().filter(({ visible, x }) => visible !== false && x.length > 0) : [];
    const names = ends.map(({ x, y, name, line }) => ({ axis: "y", x: x.at(-1), value: y.at(-1), text: name, colour: line.color }));
    placeEnds(
      this.panel.querySelector(".chart-ends"),
      this.canvas,
      names.filter(({ value }) => value !== null),
    );
  }

  rows() {
    return this.figure.data.flatMap(({ meta, x, y }) => x.map((progress, index) => [meta.trial, progress, y[index]]));
  }
}
