// Parallel coordinates of a study's trials with a range on each axis, marked by dragging or by keys. Trials outside of a marked
// range are faint, and left out of the table.

import { element } from "../../dom.js";
import { themeColour } from "../../figure.js";
import { StudyFigure } from "./figures.js";

//: Distance of two axes, below which the drawing scrolls sideways, and in the server's drawing.
const LEAST_GAP_PX = 110;
const DRAWN_GAP = 150;
//: Parts of an axis: of one press of an arrow key, and of a drag that is still a click.
const STEP = 0.05;
const CLICK = 0.01;
const STEPS_OF_KEYS = {
  ArrowUp: 1,
  ArrowRight: 1,
  ArrowDown: -1,
  ArrowLeft: -1,
  PageUp: 4,
  PageDown: -4,
  Home: Number.NEGATIVE_INFINITY,
  End: Number.POSITIVE_INFINITY,
};
//: The server rounds places to six digits.
const NEAR = 1e-6;
const STYLES = ["fill", "stroke", "stroke-width", "stroke-opacity", "font-size", "font-weight", "font-family", "paint-order", "vector-effect"];

//: Value at a place of an axis, 0 at its bottom and 1 at its top. An axis of words counts them from 0.
export function valueAt({ scale, ticks }, place) {
  if (!scale) return place * (ticks.length - 1);
  const { low, high, log } = scale;
  return log ? low * (high / low) ** place : low + (high - low) * place;
}

export function placeOf({ scale, ticks }, value) {
  if (!scale) return value / (ticks.length - 1);
  const { low, high, log } = scale;
  return log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
}

//: `range`: [low, high] as values, null where it is open.
export function holds(axis, [low, high], place) {
  if (place === null) return false;
  return (low === null || place >= placeOf(axis, low) - NEAR) && (high === null || place <= placeOf(axis, high) + NEAR);
}

function wordsAt(axis, place) {
  if (axis.scale) return String(Number(valueAt(axis, place).toPrecision(4)));
  return axis.ticks[Math.round(place * (axis.ticks.length - 1))][1];
}

function limited(place) {
  return Math.min(1, Math.max(0, place));
}

export class ParallelChart extends StudyFigure {
  //: `changed` takes the numbers of the trials within all marked ranges; null: none is marked.
  constructor(panel, changed) {
    super(panel);
    this.changed = changed;
    //: Name of an axis -> its range.
    this.ranges = new Map();
    this.brushes = new Map();
    this.data = { axes: [], places: [] };
    this.clear = panel.querySelector("[data-clear]");
    this.clear.addEventListener("click", () => {
      this.ranges.clear();
      this.apply();
      this.brushes.values().next().value?.handles[0].focus();
    });
    this.drawing = element("div", { className: "parallel-drawing" });
    this.area = element("div", { className: "parallel" }, this.drawing);
    this.canvas.setAttribute("role", "group");
    this.canvas.append(this.area);
  }

  take(data) {
    this.data = data;
    this.isLoaded = true;
    const names = new Set(data.axes.map(({ name }) => name));
    for (const [name, brush] of this.brushes) {
      if (names.has(name)) continue;
      brush.element.remove();
      this.brushes.delete(name);
      this.ranges.delete(name);
    }
    this.draw();
    this.apply();
  }

  hasData() {
    return this.data.axes.length > 0;
  }

  columns() {
    return this.data.columns;
  }

  rows() {
    return this.data.rows;
  }

  lines() {
    return this.drawing.querySelector(".parallel-lines");
  }

  paint() {
    this.drawing.innerHTML = this.data.drawing; // rendered by the server, escaped
    for (const [index, { name }] of this.data.axes.entries()) {
      if (!this.brushes.has(name)) this.brushes.set(name, new Brush(this, name));
      // One that stands in its place is not moved: it may have the focus.
      const [brush, there] = [this.brushes.get(name).element, this.area.children[index + 1]];
      if (brush !== there) this.area.insertBefore(brush, there ?? null);
    }
    this.stretch();
    this.mark();
  }

  fit() {
    if (!this.isLoaded || !this.canvas.clientWidth) return;
    if (this.lines()) this.stretch();
    else this.draw();
  }

  //: Spreads the axes over the width of the panel; texts keep their size.
  stretch() {
    const svg = this.drawing.querySelector("svg");
    if (!svg) return;
    svg.dataset.width ??= svg.getAttribute("width");
    const [width, height] = [Number(svg.dataset.width), svg.getAttribute("height")];
    const factor = Math.max(LEAST_GAP_PX / DRAWN_GAP, this.canvas.clientWidth / width);
    svg.setAttribute("width", width * factor);
    svg.setAttribute("viewBox", `0 0 ${width * factor} ${height}`);
    this.lines().setAttribute("transform", `scale(${factor} 1)`);
    for (const [index, group] of [...svg.querySelectorAll(".parallel-axis")].entries()) {
      const line = group.querySelector("line");
      const x = Number(line.getAttribute("x1"));
      group.setAttribute("transform", `translate(${x * (factor - 1)} 0)`);
      const [top, bottom] = [line.getAttribute("y1"), line.getAttribute("y2")].map(Number);
      this.brushes.get(this.data.axes[index].name).placeAt(x * factor, top, bottom - top);
    }
  }

  // --- The ranges ---

  axis(name) {
    return this.data.axes.find((axis) => axis.name === name);
  }

  //: Places of the ends of an axis' range.
  ends(name) {
    const axis = this.axis(name);
    const [low, high] = this.ranges.get(name) ?? [null, null];
    return [low === null ? 0 : limited(placeOf(axis, low)), high === null ? 1 : limited(placeOf(axis, high))];
  }

  setRange(name, low, high) {
    const axis = this.axis(name);
    const range = [low <= NEAR ? null : valueAt(axis, low), high >= 1 - NEAR ? null : valueAt(axis, high)];
    if (range.every((end) => end === null)) this.ranges.delete(name);
    else this.ranges.set(name, range);
    this.apply();
  }

  within() {
    if (!this.ranges.size) return null;
    const { axes, places } = this.data;
    const isWithin = ([, ...row]) => axes.every((axis, index) => !this.ranges.has(axis.name) || holds(axis, this.ranges.get(axis.name), row[index]));
    return new Set(places.filter(isWithin).map(([number]) => number));
  }

  apply() {
    const within = this.mark();
    const hint = this.hasData() ? `Colored by ${this.data.axes.at(-1).name}. Drag along an axis to mark a range.` : "";
    const words = within ? `${within.size} of ${this.data.places.length} trials are within the marked ranges.` : hint;
    this.note.textContent = [words, this.data.note].filter(Boolean).join(" ");
    this.clear.hidden = !within;
    this.changed(within);
  }

  mark() {
    const within = this.within();
    for (const line of this.lines()?.children ?? []) line.classList.toggle("is-out", within !== null && !within.has(Number(line.dataset.line)));
    for (const brush of this.brushes.values()) brush.show();
    return within;
  }

  // --- The picture ---

  async savePng() {
    const svg = this.drawing.querySelector("svg");
    if (!svg) return;
    const copy = svg.cloneNode(true);
    const [originals, copies] = [svg, copy].map((root) => [...root.querySelectorAll("path, line, text")]);
    for (const [index, one] of copies.entries()) {
      const style = getComputedStyle(originals[index]);
      for (const name of STYLES) one.setAttribute(name, style.getPropertyValue(name));
    }
    const ground = document.createElementNS(svg.namespaceURI, "rect");
    for (const [name, value] of Object.entries({ width: "100%", height: "100%", fill: themeColour("--surface") })) ground.setAttribute(name, value);
    copy.prepend(ground);
    const [width, height] = ["width", "height"].map((name) => Math.round(Number(svg.getAttribute(name))));
    await this.savePicture(`data:image/svg+xml,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`, { width, height });
  }
}

//: The range on one axis: a strip to drag on, and a handle at each end for keys.
class Brush {
  constructor(chart, name) {
    this.chart = chart;
    this.name = name;
    this.range = element("i", { className: "brush-range" });
    this.handles = ["from", "to"].map((end, place) => this.handle(end, place));
    this.element = element("div", { className: "brush", pointerdown: (event) => this.drag(event) }, this.range, ...this.handles);
  }

  handle(end, place) {
    const handle = element("span", { className: "brush-handle", tabIndex: 0, role: "slider", keydown: (event) => this.move(event, place) });
    const values = { "aria-label": `${this.name}, ${end}`, "aria-orientation": "vertical", "aria-valuemin": 0, "aria-valuemax": 100 };
    for (const [key, value] of Object.entries(values)) handle.setAttribute(key, value);
    return handle;
  }

  placeAt(x, top, height) {
    Object.assign(this.element.style, { left: `${x}px`, top: `${top}px`, height: `${height}px` });
  }

  show() {
    const ends = this.chart.ends(this.name);
    this.element.classList.toggle("is-marked", this.chart.ranges.has(this.name));
    Object.assign(this.range.style, { bottom: `${100 * ends[0]}%`, top: `${100 * (1 - ends[1])}%` });
    for (const [index, handle] of this.handles.entries()) {
      handle.style.bottom = `${100 * ends[index]}%`;
      handle.setAttribute("aria-valuenow", Math.round(100 * ends[index]));
      handle.setAttribute("aria-valuetext", wordsAt(this.chart.axis(this.name), ends[index]));
    }
  }

  //: From where the pointer goes down, or on a handle: from the other end.
  drag(event) {
    if (event.button) return;
    const held = this.handles.indexOf(event.target);
    const begin = this.placeOfPointer(event);
    const anchor = held < 0 ? begin : this.chart.ends(this.name)[1 - held];
    let hasMoved = false;
    const move = (moved) => {
      const place = this.placeOfPointer(moved);
      hasMoved ||= Math.abs(place - begin) > CLICK;
      if (hasMoved) this.chart.setRange(this.name, Math.min(anchor, place), Math.max(anchor, place));
    };
    const end = () => {
      this.element.removeEventListener("pointermove", move);
      if (!hasMoved && held < 0) this.chart.setRange(this.name, 0, 1);
    };
    this.element.setPointerCapture(event.pointerId);
    this.element.addEventListener("pointermove", move);
    this.element.addEventListener("lostpointercapture", end, { once: true });
  }

  placeOfPointer({ clientY }) {
    const { top, height } = this.element.getBoundingClientRect();
    return limited(1 - (clientY - top) / height);
  }

  move(event, end) {
    const axis = this.chart.axis(this.name);
    const step = axis.scale ? STEP : 1 / (axis.ticks.length - 1);
    const ends = this.chart.ends(this.name);
    const steps = STEPS_OF_KEYS[event.key];
    if (event.key === "Escape") this.chart.setRange(this.name, 0, 1);
    if (steps === undefined) return;
    event.preventDefault();
    ends[end] = limited(ends[end] + steps * step);
    ends[end] = end ? Math.max(ends[0], ends[1]) : Math.min(ends[0], ends[1]);
    this.chart.setRange(this.name, ...ends);
  }
}
