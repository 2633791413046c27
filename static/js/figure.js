// Parts that all charts share: drawing at most once a second, a table of the values, CSV and PNG, a common cursor, names at the
// ends of lines, and colours that can be seen.

import { CONSTANTS } from "./constants.js";
import { element, press } from "./dom.js";
import { keyOf, nameOf, showLegend } from "./legend.js";
import { isPrinting } from "./printing.js";

export const MAX_POINTS = CONSTANTS.maxPoints;
const REDRAW_MS = 1_000;
//: The same for what people wait for, and which part of the time may go into drawing it.
const SOON_MS = 200;
const SOON_PART = 0.5;
//: A figure that takes long to draw is drawn less often: drawing never takes more than this part of the time.
const DRAWING_PART = 0.1;
const CONFIG = { displayModeBar: false, scrollZoom: false, doubleClick: false, showAxisDragHandles: false };
const PNG = { width: 1200, height: 600, scale: 2 };
//: Top of the legend in a PNG, in heights of the plot: below the title of the horizontal axis.
const PNG_LEGEND_Y = -0.14;

export function readJson(id) {
  return JSON.parse(document.getElementById(id).textContent);
}

//: Plotly reads a little markup in texts; what people named must stay text.
export function asText(value) {
  return String(value).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

//: Plotly shows times as they are written: write them in the viewer's time zone.
export function localTime(milliseconds) {
  const moment = new Date(milliseconds);
  return new Date(milliseconds - moment.getTimezoneOffset() * 60_000).toISOString().slice(0, 23);
}

//: The way back from what an axis says.
function fromLocalTime(axisMilliseconds) {
  const moment = new Date(axisMilliseconds);
  return axisMilliseconds + moment.getTimezoneOffset() * 60_000;
}

export function themeColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

//: Puts a figure on the page; redraws at most once a second and not while nobody looks.
export class Figure {
  constructor(panel, figure) {
    this.panel = panel;
    this.canvas = panel.querySelector(".chart-canvas");
    this.empty = panel.querySelector(".chart-empty");
    this.table = panel.querySelector(".chart-table");
    this.cursor = panel.querySelector(".chart-cursor");
    this.figure = figure;
    this.drawnAt = 0;
    this.drawingMs = 0;
    this.timer = null;
    this.legend = panel.querySelector(".chart-legend");
    this.takenAway = new Set();
    panel.querySelector("[data-chart-table]")?.addEventListener("click", (event) => this.toggleTable(event.currentTarget));
    panel.querySelector("[data-chart-csv]")?.addEventListener("click", () => this.saveCsv());
    panel.querySelector("[data-chart-png]")?.addEventListener("click", () => this.savePng());
    document.addEventListener("visibilitychange", () => document.hidden || this.request());
    document.addEventListener("tidepool:theme", () => this.draw());
    new ResizeObserver(() => this.fit()).observe(this.canvas);
    this.followCursor();
  }

  //: Buttons with `data-<name>`, of which one is pressed.
  onChoice(name, take) {
    const buttons = this.panel.querySelectorAll(`[data-${name}]`);
    for (const button of buttons) {
      button.addEventListener("click", () => {
        press(buttons, name, button.dataset[name]);
        take(button.dataset[name]);
      });
    }
  }

  request(urgent = false) {
    if (document.hidden) return;
    const pause = urgent ? Math.max(SOON_MS, this.drawingMs / SOON_PART) : Math.max(REDRAW_MS, this.drawingMs / DRAWING_PART);
    const due = Math.max(performance.now(), this.drawnAt + pause);
    if (this.timer !== null && this.due <= due) return;
    clearTimeout(this.timer);
    this.due = due;
    this.timer = setTimeout(() => {
      this.timer = null;
      this.draw();
    }, due - performance.now());
  }

  draw() {
    this.drawnAt = performance.now();
    const isEmpty = !this.hasData();
    this.empty.hidden = !isEmpty;
    this.canvas.classList.toggle("invisible", isEmpty);
    if (this.table && !this.table.hidden) this.fillTable();
    if (isEmpty || !this.canvas.clientWidth) return;
    this.paint();
    this.drawingMs = performance.now() - this.drawnAt;
    this.drawn();
  }

  paint() {
    const traces = this.shownTraces();
    window.Plotly.react(this.canvas, traces, this.layout(), this.config());
    if (this.legend) showLegend(this.legend, this.names(traces), this.takenAway, (key) => this.toggle(key));
  }

  config() {
    return CONFIG;
  }

  //: After its place got another size, or can be seen for the first time.
  fit() {
    if (!this.canvas.clientWidth) return;
    const { width, height } = this.canvas._fullLayout ?? {};
    if (width === undefined) this.draw();
    else if (width !== this.canvas.clientWidth || height !== this.canvas.clientHeight) window.Plotly.Plots.resize(this.canvas).then(() => this.drawn());
  }

  // --- The legend ---

  names(traces) {
    return traces.filter(({ showlegend }) => showlegend !== false).map(nameOf);
  }

  toggle(key) {
    if (!this.takenAway.delete(key)) this.takenAway.add(key);
    this.draw();
  }

  shownTraces() {
    return this.traces().map((trace) => (this.takenAway.has(keyOf(trace)) ? { ...trace, visible: false } : trace));
  }

  layout() {
    const layout = { ...structuredClone(this.figure.layout), showlegend: false };
    //: Plotly adapts to a new width with a delay, which is too late for printing.
    if (isPrinting()) layout.width = this.canvas.clientWidth;
    this.prepare(layout);
    colourAxes(layout);
    return layout;
  }

  hasData() {
    return this.rows().length > 0;
  }

  prepare() {}

  //: Takes away from a saved picture what makes sense on the page alone.
  forPicture() {}

  drawn() {}

  //: Heads of the table; those that the server rendered unless a chart knows better.
  columns() {
    return [...this.table.querySelectorAll("th")].map((cell) => cell.textContent);
  }

  toggleTable(button) {
    this.table.hidden = !this.table.hidden;
    button.setAttribute("aria-pressed", String(!this.table.hidden));
    this.canvas.hidden = !this.table.hidden;
    this.panel.querySelector(".chart-ends").hidden = this.canvas.hidden;
    if (this.table.hidden) this.draw();
    else this.fillTable();
  }

  fillTable() {
    const heads = this.columns().map((text) => element("th", { scope: "col" }, text));
    this.table.querySelector("thead tr").replaceChildren(...heads);
    const rows = this.rows().slice(-MAX_POINTS).reverse();
    this.table.querySelector("tbody").replaceChildren(...rows.map((row) => element("tr", {}, ...row.map((value) => element("td", {}, String(value ?? ""))))));
  }

  saveCsv() {
    this.saveRows(this.rows());
  }

  saveRows(rows) {
    const lines = [this.columns(), ...rows].map((row) => row.map(csvCell).join(","));
    const address = URL.createObjectURL(new Blob([lines.join("\r\n")], { type: "text/csv" }));
    save(address, `${this.fileName()}.csv`);
    URL.revokeObjectURL(address);
  }

  //: On the page's ground: a picture without one cannot be read elsewhere.
  async savePng() {
    if (!this.hasData()) return;
    const layout = this.layout();
    this.forPicture(layout);
    const title = { text: asText(`${document.title} – ${this.panel.querySelector("h2").textContent}`), x: 0.01, font: { size: 15 } };
    const ground = themeColour("--surface");
    // The picture has no font of the page's: with its own, the widths of words are measured right.
    Object.assign(layout.font, { family: "sans-serif" });
    // Below the plot the legend has room for any number of rows; Plotly makes the margin.
    const legend = { ...layout.legend, y: PNG_LEGEND_Y, yanchor: "top" };
    Object.assign(layout, { title, legend, showlegend: true, paper_bgcolor: ground, plot_bgcolor: ground, margin: { ...layout.margin, t: 56 } });
    const drawing = await window.Plotly.toImage({ data: this.shownTraces(), layout }, { format: "svg", width: PNG.width, height: PNG.height });
    await this.savePicture(drawing, PNG);
  }

  //: drawing: address of an SVG image with this size.
  async savePicture(drawing, { width, height }) {
    save(await rastered(drawing, width, height), `${this.fileName()}.png`);
  }

  fileName() {
    const study = this.panel.closest("[data-study]")?.dataset.study;
    if (study) return `study-${study}-${this.panel.dataset.chart}`;
    const job = document.querySelector("[data-job]")?.dataset.job;
    return job && this.panel.closest("[data-job]") ? `job-${job}-${this.panel.dataset.chart}` : this.panel.dataset.chart;
  }

  // --- The cursor: charts of the same page show the same moment ---

  followCursor() {
    this.canvas.addEventListener("mousemove", (event) => this.say(this.momentAt(event)));
    this.canvas.addEventListener("mouseleave", () => this.say(null));
    document.addEventListener("tidepool:cursor", (event) => this.showCursor(event.detail));
  }

  say(at) {
    document.dispatchEvent(new CustomEvent("tidepool:cursor", { detail: { at, from: this } }));
  }

  momentAt(event) {
    const axis = this.canvas._fullLayout?.xaxis;
    if (!axis) return null;
    const place = event.clientX - this.canvas.getBoundingClientRect().left - axis._offset;
    return place < 0 || place > axis._length ? null : this.toMoment(axis.p2c(place));
  }

  showCursor({ at, from }) {
    const axis = this.canvas._fullLayout?.xaxis;
    const value = at === null || from === this || !axis || this.canvas.hidden ? null : this.fromMoment(at);
    const place = value === null ? -1 : axis.c2p(value);
    this.cursor.hidden = place < 0 || place > (axis?._length ?? 0);
    if (!this.cursor.hidden) this.cursor.style.left = `${axis._offset + place + this.canvas.offsetLeft}px`;
  }

  //: Between the numbers of the x axis (for times: of the viewer's zone) and moments.
  toMoment(value) {
    return fromLocalTime(value);
  }

  fromMoment(at) {
    return Date.parse(`${localTime(at)}Z`);
  }
}

//: Plotly's own way to a PNG loads a blob as an image, which the content security policy does not allow.
async function rastered(drawing, width, height) {
  const image = new Image();
  image.src = drawing;
  await image.decode();
  const picture = document.createElement("canvas");
  [picture.width, picture.height] = [width * PNG.scale, height * PNG.scale];
  picture.getContext("2d").drawImage(image, 0, 0, picture.width, picture.height);
  return picture.toDataURL("image/png");
}

function save(address, name) {
  element("a", { href: address, download: name }).click();
}

//: A leading sign of a formula is defused: spreadsheets run formulas that come in text.
function csvCell(value) {
  const text = String(value ?? "");
  const safe = typeof value === "string" && /^\s*[=+\-@]|^[\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function colourAxes(layout) {
  const grid = themeColour("--chart-grid");
  layout.font.color = themeColour("--chart-ink");
  layout.font.family = getComputedStyle(document.body).fontFamily;
  layout.hoverlabel = { align: "left", bgcolor: themeColour("--chart-hover"), bordercolor: grid, font: { color: layout.font.color, size: 12 } };
  for (const name of Object.keys(layout).filter((key) => /^[xy]axis/.test(key))) {
    layout[name] = { fixedrange: true, automargin: true, ...layout[name], gridcolor: grid, linecolor: grid };
    if (layout[name].showspikes) Object.assign(layout[name], { spikecolor: layout.font.color, spikethickness: 1, spikedash: "solid" });
  }
}

// --- Names at the ends of lines, where two to eight of them share a row that has room; the legend has all names ---

const LEAST_LINES = 2;
const MOST_LINES = 8;
//: Of one name.
const HEIGHT_PX = 14;
const GAP_PX = 5;
//: Ends that are nearer to each other than this, from left to right, are spread from top to bottom.
const NEAR_PX = 24;

//: Of these numbers of lines, one for each row, whether some row may have names.
export function mayName(counts) {
  return counts.some((count) => count >= LEAST_LINES && count <= MOST_LINES);
}

//: `ends`: {axis, x, value, text, colour} of each line; without `x` its name stands beside the plot.
export function placeEnds(box, canvas, ends) {
  const names = [...Map.groupBy(ends, ({ axis }) => axis).values()].flatMap((row) => placesOf(row, canvas._fullLayout));
  box.replaceChildren(...names.map((name) => nameElement(name, canvas)));
  box.hidden = canvas.hidden;
}

function nameElement({ left, top, text, colour }, canvas) {
  const name = element("span", {}, element("i"), text);
  name.firstChild.style.background = colour;
  name.style.left = `${left + canvas.offsetLeft}px`;
  name.style.top = `${top + canvas.offsetTop}px`;
  return name;
}

function placesOf(row, { xaxis, ...layout }) {
  const yaxis = layout[row[0].axis.replace("y", "yaxis")];
  if (row.length < LEAST_LINES || row.length > MOST_LINES || yaxis._length < row.length * HEIGHT_PX) return [];
  const lefts = row.map(({ x }) => xaxis._offset + (x === undefined ? xaxis._length : xaxis.d2p(x)) + GAP_PX);
  const places = row.map(({ value, text, colour }, index) => ({ left: lefts[index], top: yaxis._offset + yaxis.d2p(value), text, colour }));
  const [least, most] = [yaxis._offset + HEIGHT_PX / 2, yaxis._offset + yaxis._length - HEIGHT_PX / 2];
  for (const near of Map.groupBy(places, ({ left }) => Math.round(left / NEAR_PX)).values()) spread(near, least, most);
  return places;
}

//: Moves them apart, as little as it takes to read them.
function spread(places, least, most) {
  const order = [...places].sort((one, other) => one.top - other.top);
  let free = least;
  for (const place of order) {
    place.top = Math.max(place.top, free);
    free = place.top + HEIGHT_PX;
  }
  let limit = most;
  for (const place of order.reverse()) {
    place.top = Math.min(place.top, limit);
    limit = place.top - HEIGHT_PX;
  }
}

// --- Colours of lines: those of the jobs, as far as they can be seen on the page's ground ---

//: What WCAG asks of graphics.
const LEAST_CONTRAST = 3;
const MIX = 0.1;

function parts(colour) {
  return [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16));
}

function luminance(colour) {
  const [red, green, blue] = parts(colour).map((part) => (part <= 10 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

export function contrast(one, other) {
  const [dark, light] = [luminance(one), luminance(other)].sort((first, second) => first - second);
  return (light + 0.05) / (dark + 0.05);
}

function mixed(colour, other) {
  const others = parts(other);
  return `#${parts(colour)
    .map((part, place) =>
      Math.round(part + (others[place] - part) * MIX)
        .toString(16)
        .padStart(2, "0"),
    )
    .join("")}`;
}

//: The same hue, lighter or darker until it stands out from the ground. All as `#rrggbb`.
export function seenOn(ground, colour) {
  const away = luminance(ground) < 0.18 ? "#ffffff" : "#000000";
  let seen = colour;
  while (contrast(seen, ground) < LEAST_CONTRAST) seen = mixed(seen, away);
  return seen;
}
