// One job's page: its chart of GPUs, loss and accuracy, ranks, log and events, kept live.

import { MetricsChart, readJson, TideChart } from "./charts.js";
import { refreshTimes } from "./frame.js";
import { setField, showProgress, showState } from "./fields.js";
import { live } from "./live.js";
import { bytes, clock, inWords } from "./words.js";

const LOG_MS = 2_000;
const CHECKPOINTS_MS = 5_000;
const LOG_CHARACTERS = 200_000;
const EVENTS_SHOWN = 500;
const OVER = new Set(["SUCCEEDED", "FAILED", "CANCELLED"]);

const root = document.getElementById("job");
const job = Number(root.dataset.job);
const page = readJson("live-job");
let ranks = page.ranks;
let finishedAt = page.state.finished_at;
const events = new Map();

const tide = new TideChart(document.querySelector('[data-chart="gpus"]'), readJson("figure-gpus"), {
  endOf: () => (finishedAt ? Date.parse(finishedAt) + 1_000 : Date.now()),
});
const metrics = new MetricsChart(document.querySelector('[data-chart="metrics"]'), readJson("figure-metrics"));

function number(value, digits) {
  return value === null || value === undefined ? "–" : Number(value).toPrecision(digits);
}

function showNumbers(values) {
  const isTested = values.test_accuracy !== undefined;
  const accuracy = isTested ? values.test_accuracy : values.accuracy;
  setField(root, "loss", number(values.loss, 3));
  setField(root, "accuracy-label", isTested ? "Accuracy on the test data" : "Accuracy");
  setField(root, "accuracy", accuracy === null || accuracy === undefined ? "–" : `${accuracy.toFixed(1)} %`);
}

function showError(error) {
  const box = document.getElementById("failure");
  box.hidden = !error;
  if (!error) return;
  setField(box, "error-title", error.kind || "Failed");
  setField(box, "error-message", error.message || "");
  setField(box, "error-tried", error.tried || "");
  setField(box, "error-traceback", error.traceback || "");
  box.querySelector("details").hidden = !error.traceback;
}

function showMoment(name, at) {
  const time = root.querySelector(`[data-field="${name}"] time`);
  if (!at || time?.dateTime === at) return;
  const fresh = document.createElement("time");
  fresh.dateTime = at;
  fresh.dataset.relative = "";
  root.querySelector(`[data-field="${name}"]`).replaceChildren(fresh);
  refreshTimes(root);
}

//: A chart that stays empty says so, and takes little room.
function showOver() {
  for (const empty of root.querySelectorAll(".chart-empty[data-over]")) {
    empty.textContent = empty.dataset.over;
    empty.classList.add("is-over");
  }
}

function showJob(state) {
  root.dataset.state = state.state;
  showState(root, state.state);
  for (const element of root.querySelectorAll("[data-when]")) {
    element.hidden = !element.dataset.when.split(" ").includes(state.state);
  }
  setField(root, "reason", state.reason.text);
  for (const name of ["slots", "max_slots", "step", "epoch", "priority"]) setField(root, name, String(state[name]));
  showProgress(root, state.progress);
  showNumbers(state.final_metrics ?? {});
  showError(state.error);
  showMoment("started_at", state.started_at);
  showMoment("finished_at", state.finished_at);
  finishedAt = state.finished_at;
  tide.capacity = state.max_slots;
  tide.request();
  if (OVER.has(state.state)) showOver();
}

function cell(row, label, value, className = "") {
  const fresh = row.insertCell();
  fresh.dataset.label = label;
  if (className) fresh.className = className;
  if (value instanceof Node) fresh.append(value);
  else fresh.textContent = value ?? "–";
}

function timeElement(at) {
  const time = document.createElement("time");
  time.dateTime = at;
  time.dataset.relative = "";
  return time;
}

function ending(exit) {
  if (!exit) return "–";
  const how = exit.signal ? `signal ${exit.signal}` : `exit ${exit.code}`;
  return exit.error?.message ? `${how}: ${exit.error.message}` : how;
}

function showRanks() {
  const body = document.getElementById("rank-rows");
  body.replaceChildren(...[...ranks].reverse().map((rank) => {
    const row = document.createElement("tr");
    cell(row, "Rank", rank.rank, "number");
    cell(row, "State", inWords(rank.state));
    cell(row, "Host", rank.host);
    cell(row, "GPU", rank.slot, "number");
    cell(row, "Process", rank.pid, "number");
    cell(row, "Id", rank.wid, "mono");
    cell(row, "Started", timeElement(rank.started_at));
    cell(row, "Ended with", ending(rank.exit));
    return row;
  }));
  body.closest(".table-wrap").classList.toggle("is-empty", ranks.length === 0);
  refreshTimes(body);
  showLogChoices();
}

function showEvents(fresh) {
  for (const event of fresh) events.set(event.seq, event);
  const shown = [...events.values()].sort((one, other) => other.seq - one.seq).slice(0, EVENTS_SHOWN);
  const body = document.getElementById("event-rows");
  body.replaceChildren(...shown.map((event) => {
    const row = document.createElement("tr");
    cell(row, "When", timeElement(event.at));
    cell(row, "State", event.old && event.old !== event.new ? `${inWords(event.old)} → ${inWords(event.new)}` : inWords(event.new));
    cell(row, "What and why", event.reason.text);
    cell(row, "By", event.actor);
    return row;
  }));
  refreshTimes(body);
}

// --- Log ---------------------------------------------------------------------------------------------------------

const choice = document.getElementById("log-rank");
const stream = document.getElementById("log-stream");
const follow = document.getElementById("log-follow");
const text = document.getElementById("log-text");
let position = null;
let reading = false;
//: Until the viewer picks a log, the one that has content is shown.
let isPicked = false;

function showLogChoices() {
  const wanted = [...ranks].reverse();
  const kept = [choice.value, stream.value];
  choice.replaceChildren(...wanted.map((rank) => new Option(`${rank.rank === null ? rank.wid : `rank ${rank.rank} (${rank.wid})`}${rank.exit ? ", ended" : ""}`, rank.wid)));
  choice.value = kept[0];
  if (page.log && (!isPicked || choice.selectedIndex < 0)) {
    choice.value = page.log.rank;
    stream.value = page.log.stream;
  }
  document.getElementById("log-empty").hidden = ranks.length > 0;
  text.hidden = ranks.length === 0;
  if (choice.value !== kept[0] || stream.value !== kept[1]) restartLog();
}

function nothingWritten(asked) {
  const isOver = OVER.has(root.dataset.state);
  if (asked.rank === page.log?.rank && asked.stream === "stdout" && !isPicked) return isOver ? "The script wrote nothing to stdout or stderr." : "The script has written nothing to stdout or stderr yet.";
  return isOver ? `This rank wrote nothing to ${asked.stream}.` : `This rank has written nothing to ${asked.stream} yet.`;
}

function pickLog() {
  isPicked = true;
  restartLog();
}

function restartLog() {
  position = null;
  text.textContent = "";
  readLog().catch(() => {});
}

async function readLog() {
  if (reading || document.hidden || !choice.value || !document.getElementById("log").classList.contains("active")) return;
  reading = true;
  const asked = { rank: choice.value, stream: stream.value };
  try {
    const after = position === null ? "" : `&after=${position}`;
    const response = await fetch(`/api/v1/jobs/${job}/logs/?rank=${encodeURIComponent(asked.rank)}&stream=${asked.stream}${after}`);
    if (!response.ok) return;
    const piece = await response.json();
    if (asked.rank !== choice.value || asked.stream !== stream.value) return;
    position = piece.next;
    if (piece.text) text.textContent = (text.textContent + piece.text).slice(-LOG_CHARACTERS);
    if (!text.textContent) text.dataset.empty = nothingWritten(asked);
    else delete text.dataset.empty;
    if (piece.text && follow.checked) text.scrollTop = text.scrollHeight;
  } finally {
    reading = false;
  }
}

choice.addEventListener("change", pickLog);
stream.addEventListener("change", pickLog);
document.addEventListener("shown.bs.tab", () => readLog().catch(() => {}));
setInterval(() => readLog().catch(() => {}), LOG_MS);

// --- Checkpoints -------------------------------------------------------------------------------------------------

const checkpoints = document.getElementById("checkpoint-rows");

function link(href, words, isDownload = false) {
  const anchor = document.createElement("a");
  anchor.href = href;
  anchor.textContent = words;
  anchor.toggleAttribute("download", isDownload);
  return anchor;
}

function uses(checkpoint) {
  if (checkpoint.problem) return `Cannot be used: ${checkpoint.problem}`;
  const box = document.createElement("span");
  const train = `${checkpoints.dataset.train}&start_from=checkpoint`;
  box.append(link(`${train}-${checkpoint.id}`, "Continue it"), " · ", link(`${train}weights-${checkpoint.id}`, "Use its weights"), " · ", link(`/api/v1/jobs/${job}/checkpoints/${checkpoint.id}/download/`, "Download", true));
  return box;
}

function showCheckpoints(rows) {
  checkpoints.replaceChildren(...rows.map((checkpoint) => {
    const row = document.createElement("tr");
    cell(row, "Step", checkpoint.step, "number");
    cell(row, "Epoch", checkpoint.epoch, "number");
    cell(row, "Written", timeElement(checkpoint.created_at));
    cell(row, "Size", bytes(checkpoint.size_bytes), "number");
    cell(row, "Use", uses(checkpoint));
    return row;
  }));
  checkpoints.closest(".table-wrap").classList.toggle("is-empty", rows.length === 0);
  refreshTimes(checkpoints);
}

async function readCheckpoints() {
  if (document.hidden || !document.getElementById("checkpoints").classList.contains("active")) return;
  const response = await fetch(`/api/v1/jobs/${job}/checkpoints/`);
  if (response.ok) showCheckpoints((await response.json()).results);
}

document.addEventListener("shown.bs.tab", () => readCheckpoints().catch(() => {}));
setInterval(() => readCheckpoints().catch(() => {}), CHECKPOINTS_MS);

// --- Live --------------------------------------------------------------------------------------------------------

let incarnation = page.state.incarnation;

//: Who trains changes with the generation; their rows come by fetching. A new incarnation may begin at an earlier step.
function followChange(state, news) {
  if (news === state || (news.generation === undefined && news.incarnation === undefined && news.state === undefined)) return;
  clearTimeout(followChange.timer);
  followChange.timer = setTimeout(() => topic.fetch().catch(() => {}), 500);
}

const topic = live.watch({
  name: `job.${job}`,
  seq: page.seq,
  url: root.dataset.live,
  state: page.state,
  onState: (state, news) => {
    showJob(state);
    followChange(state, news);
  },
  onAppend: (news) => {
    for (const point of news.allocation ?? []) tide.addStep(job, point);
    metrics.addPoints(news.metrics ?? []);
    if (news.events?.length) showEvents(news.events);
  },
  onSnapshot: (snapshot) => {
    ranks = snapshot.ranks;
    page.log = snapshot.log;
    showRanks();
    if (snapshot.state.incarnation !== incarnation) metrics.replacePoints([]);
    incarnation = snapshot.state.incarnation;
  },
});

showJob(page.state);
showRanks();
showEvents(page.append.events);
refreshTimes(root);
document.documentElement.dataset.ready = clock(new Date());
