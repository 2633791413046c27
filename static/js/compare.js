// Curves of several trainings: by step, or by the time since each one's start.

import { Figure, readJson } from "./figure.js";

const MINUTE = 60;

class Comparison extends Figure {
  constructor(panel, figure) {
    super(panel, figure);
    this.byTime = false;
    for (const button of panel.querySelectorAll("[data-axis]")) button.addEventListener("click", () => this.chooseAxis(button.dataset.axis));
    this.draw();
  }

  chooseAxis(name) {
    this.byTime = name === "time";
    for (const button of this.panel.querySelectorAll("[data-axis]")) button.setAttribute("aria-pressed", String(button.dataset.axis === name));
    this.draw();
  }

  traces() {
    return this.figure.data.map((trace) => ({
      ...trace,
      x: this.byTime ? trace.customdata.map((seconds) => seconds / MINUTE) : trace.x,
      customdata: undefined,
    }));
  }

  prepare(layout) {
    layout.xaxis.title = { text: this.byTime ? "Minutes since its start" : "Step (optimizer updates)" };
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
    return this.figure.data.flatMap(({ meta, x, y, customdata }) => x.map((step, index) => [meta.label, meta.title, step, customdata[index], y[index] === null ? "not a number" : y[index]]));
  }
}

new Comparison(document.querySelector('[data-chart="comparison"]'), readJson("figure-comparison"));
document.documentElement.dataset.ready = "yes";
