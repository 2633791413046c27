// Utilization and memory of GPUs over time: a line of bars for each GPU. A fuller colour means more.

import { Figure, localTime, themeColour } from "./figure.js";
import { fetchJson } from "./live.js";
import { clock, exactTime, wrapped } from "./words.js";

const RENEW_MS = 10_000;
//: Part of the time that may go into drawing what is only newer.
const RENEWING_PART = 0.01;
const LINE_PX = 16;
const LEAST_LINE_PX = 7;
const ROOM_PX = 420;
const REST_PX = 96;
const GIB = 2 ** 30;
const EMPTY = { data: [], layout: { font: {}, meta: { lines: 0 } } };

class GpuUse extends Figure {
  take(figure) {
    this.figure = figure;
    const lines = 2 * Math.max(2, figure.layout.meta.lines);
    const height = REST_PX + lines * Math.max(LEAST_LINE_PX, Math.min(LINE_PX, ROOM_PX / lines));
    this.canvas.parentElement.style.height = `${Math.round(height)}px`;
    this.panel.querySelector(".chart-note").textContent = figure.layout.meta.note;
    this.draw();
  }

  bars(kind) {
    const trace = this.figure.data.find((one) => one.meta.kind === kind);
    if (!trace) return [];
    return trace.base.map((base, index) => {
      const from = Date.parse(base);
      const [share, busy, memory] = trace.customdata[index];
      return { from, until: from + trace.x[index], gpu: trace.y[index], share, busy, memory };
    });
  }

  prepare(layout) {
    const { start, end } = layout.meta;
    layout.xaxis.range = [localTime(Date.parse(start)), localTime(Date.parse(end))];
  }

  traces() {
    const [ground, full] = [themeColour("--chart-grid"), themeColour("--chart-first")];
    return this.figure.data.map((trace) => {
      if (trace.meta.kind === "marks") {
        const text = trace.text.map((words, index) => [`<b>${clock(new Date(trace.x[index]))}</b>`, ...wrapped(words)].join("<br>"));
        return { ...trace, text, x: trace.x.map((at) => localTime(Date.parse(at))), marker: { ...trace.marker, color: themeColour("--chart-second") } };
      }
      const bars = this.bars(trace.meta.kind);
      const marker = {
        color: bars.map(({ share }) => share),
        colorscale: [
          [0, ground],
          [1, full],
        ],
        cmin: 0,
        cmax: 1,
      };
      return { ...trace, base: bars.map(({ from }) => localTime(from)), text: bars.map(inWords), textposition: "none", marker };
    });
  }

  rows() {
    const found = new Map();
    for (const bar of [...this.bars("busy"), ...this.bars("memory")]) found.set(`${bar.gpu} ${bar.from}`, bar);
    return [...found.values()]
      .sort((one, other) => one.from - other.from)
      .map(({ from, until, gpu, busy, memory }) => [
        exactTime(new Date(from)),
        exactTime(new Date(until)),
        gpu,
        busy === null ? "" : Math.round(busy),
        memory === null ? "" : (memory / GIB).toFixed(2),
      ]);
  }
}

function inWords({ gpu, from, until, busy, memory }) {
  const values = [busy === null ? "" : `${Math.round(busy)} % busy`, memory === null ? "" : `${(memory / GIB).toFixed(1)} GiB in use at most`];
  return [`<b>${gpu}</b>`, `${clock(new Date(from))} to ${clock(new Date(until))}`, ...values.filter(Boolean)].join("<br>");
}

//: Fetches the figure of `panel` from `address()` while somebody sees it. Answers with what fetches it at once.
export function startGpuUse(panel, address) {
  const chart = new GpuUse(panel, EMPTY);
  const renew = async () => {
    if (document.hidden || !panel.checkVisibility()) return;
    const asked = address();
    const figure = await fetchJson(asked);
    if (asked === address()) chart.take(figure);
  };
  const renewQuietly = () => renew().catch(() => {}); // the page says that the server does not answer
  setInterval(() => performance.now() - chart.drawnAt >= chart.drawingMs / RENEWING_PART && renewQuietly(), RENEW_MS);
  document.addEventListener("tidepool:tab", renewQuietly);
  renewQuietly();
  return renewQuietly;
}
