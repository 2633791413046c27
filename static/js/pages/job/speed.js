// Chart of goodput over GPUs, drawn anew with each rendering of its part.

import { Figure, themeColour } from "../../figure.js";

//: Colours of the traces by their kind; dashes mark the curve.
const COLOURS = { fitted: "--chart-first", assumed: "--chart-first", measured: "--chart-second", now: "--chart-ink", knee: "--chart-third" };

class GoodputChart extends Figure {
  take(figure) {
    this.figure = figure;
    this.panel.hidden = figure.data.length === 0;
    this.draw();
  }

  traces() {
    return this.figure.data.map((trace) => {
      const color = themeColour(COLOURS[trace.meta.kind]);
      return { ...trace, line: { ...trace.line, color }, marker: { ...trace.marker, color, line: { ...trace.marker?.line, color } } };
    });
  }

  rows() {
    const of = (kind) => this.figure.data.find((trace) => trace.meta.kind === kind);
    const sized = ["fitted", "assumed"].flatMap((kind) => {
      const { x, y, customdata } = of(kind) ?? { x: [], y: [] };
      // The dashed part begins at the last size of the other one.
      const first = kind === "assumed" && of("fitted") ? 1 : 0;
      return x.slice(first).map((count, index) => [count, digits(y[first + index]), digits(customdata[first + index][1]), kind, customdata[first + index][0]]);
    });
    const measured = of("measured");
    const points = measured ? measured.x.map((count, index) => [count, digits(measured.y[index]), "", "measured", measured.customdata[index][0]]) : [];
    return [...sized, ...points];
  }
}

function digits(value) {
  return Number(value.toPrecision(3));
}

export function start(_, root) {
  const part = document.getElementById("speed-part");
  const chart = new GoodputChart(root.querySelector('[data-chart="speed"]'), { data: [], layout: {} });
  chart.panel.hidden = true;
  part.addEventListener("htmx:afterSettle", () => chart.take(JSON.parse(document.getElementById("speed-figure").dataset.figure)));
  return {};
}
