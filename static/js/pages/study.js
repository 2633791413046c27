// The page of a study: its changing part and its figures follow the study's topic.

import { readJson } from "../figure.js";
import { CALM_MS, renewer } from "../fresh.js";
import { atMostEvery, fetchJson, live } from "../live.js";
import { pointAtEachOther } from "../parallel.js";
import { Trace } from "../pool.js";
import { CurvesFigure, ImportanceFigure, SliceFigure, StudyFigure } from "./study/figures.js";
import { ParallelChart } from "./study/parallel.js";

//: Curves and GPUs of trials that train change without news of the study.
const MOVING_MS = 10_000;

const now = document.getElementById("now");
const box = now.querySelector(".study-figures");
const trouble = document.getElementById("figures-trouble");
//: Numbers of the trials that the table shows; null: all.
let within = null;
let trains = false;

function panel(name) {
  return box.querySelector(`[data-chart="${name}"]`);
}

// --- The table shows the trials within the marked ranges -------------------------------------------------------------

function filterRows() {
  const rows = [...now.querySelectorAll("#trials tbody tr")];
  for (const row of rows) row.hidden = within !== null && !within.has(Number(row.dataset.trial));
  const shown = rows.filter((row) => !row.hidden).length;
  const words = within === null ? "" : `${shown} of ${rows.length} are within the marked ranges.`;
  const hint = document.getElementById("trials-within");
  if (hint.textContent !== words) hint.textContent = words;
}

document.addEventListener("htmx:afterSwap", filterRows);

// --- The figures -----------------------------------------------------------------------------------------------------

const charts = {
  history: new StudyFigure(panel("history")),
  importance: new ImportanceFigure(panel("importance")),
  parallel: new ParallelChart(panel("parallel"), (numbers) => {
    within = numbers;
    filterRows();
  }),
  slice: new SliceFigure(panel("slice")),
  curves: new CurvesFigure(panel("curves")),
};
pointAtEachOther(charts.parallel.area, () => charts.parallel.lines(), document.getElementById("trials-panel"), "trial");
let gpus = null;

function showGpus(figure) {
  const endOf = () => Date.parse((gpus?.figure ?? figure).layout.meta.end) || Date.now();
  if (gpus) gpus.take(figure);
  else gpus = new Trace(panel("gpus"), figure, { endOf });
}

async function load() {
  try {
    const made = await fetchJson(box.dataset.source);
    trains = made.trains;
    for (const [name, chart] of Object.entries(charts)) chart.take(made[name]);
    showGpus(made.gpus);
    trouble.hidden = true;
  } catch (error) {
    trouble.hidden = false;
    throw error;
  } finally {
    box.removeAttribute("aria-busy");
  }
}

const loadSoon = atMostEvery(CALM_MS, load);
loadSoon();
setInterval(() => trains && loadSoon(), MOVING_MS);

// --- Live ------------------------------------------------------------------------------------------------------------

const renew = renewer(now);
const { name, seq } = readJson("live-study");
live.watch({
  name,
  seq,
  onState: () => {
    renew(false);
    loadSoon();
  },
});
