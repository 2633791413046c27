// The hosts, kept live: state, last report and readings as they are reported, and who holds which GPU; a host that
// comes, goes, or is another machine than it was, is fetched as the server renders it.

import { ask } from "../ask.js";
import { whileBusy } from "../busy.js";
import { jobMark, replaceRows, setField, showState } from "../fields.js";
import { readJson } from "../figure.js";
import { refreshTimes } from "../frame.js";
import { live } from "../live.js";
import { say } from "../toasts.js";
import { duration } from "../words.js";

//: Hosts that come at once are one fetch.
const SOON_MS = 500;
const HELD_MS = 300;
//: Idle times grow without anything being said.
const HELD_EVERY_MS = 5_000;
const FACTS = ["address", "ncpus", "memory_bytes", "ngpus", "virtual"];
//: What is said of a GPU that nobody holds.
const FREE_WORDS = readJson("statuses");

const page = readJson("live-hosts");
const panels = document.getElementById("hosts");
//: Host -> what its panel was rendered for.
const shapes = new Map(Object.entries(page.state).map(([name, host]) => [name, shapeOf(host)]));
let timer = null;
let heldTimer = null;

//: What makes another panel; the state, because it decides what can be done to the host.
function shapeOf(host) {
  return host && JSON.stringify([host.state, host.last_report_at === null, FACTS.map((name) => host[name]), Object.entries(host.slots).map(([index, slot]) => [index, slot.device_model])]);
}

function panelOf(name) {
  return panels.querySelector(`section[data-host="${CSS.escape(name)}"]`);
}

function rowOf(key) {
  return panels.querySelector(`tr[data-slot="${CSS.escape(key)}"]`);
}

//: The same rule as the filter `size` of the templates.
function size(bytes) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) [bytes, unit] = [bytes / 1024, unit + 1];
  return `${unit ? bytes.toFixed(1) : bytes} ${units[unit]}`;
}

function memory(slot) {
  if (slot.memory_used_bytes === null) return "–";
  return size(slot.memory_used_bytes) + (slot.memory_total_bytes ? ` of ${size(slot.memory_total_bytes)}` : "");
}

function rounded(value, unit) {
  return value === null ? "–" : `${Math.round(value)} ${unit}`;
}

function showHost(name, host) {
  const panel = panelOf(name);
  showState(panel, host.state);
  const time = panel.querySelector('[data-field="last_report"] time');
  if (time && host.last_report_at) time.dateTime = host.last_report_at;
  for (const [index, slot] of Object.entries(host.slots)) {
    const row = rowOf(`${name}:${index}`);
    if (!row) continue;
    setField(row, "utilisation", rounded(slot.utilisation_percent, "%"));
    setField(row, "memory", memory(slot));
    setField(row, "temperature", rounded(slot.temperature_celsius, "°C"));
    setField(row, "power", rounded(slot.power_watts, "W"));
  }
}

function show(hosts) {
  for (const [name, host] of Object.entries(hosts)) {
    if (shapes.get(name) !== shapeOf(host)) renewSoon();
    if (host && panelOf(name)) showHost(name, host);
  }
  refreshTimes(panels);
}

function renewSoon() {
  if (timer !== null) return;
  timer = setTimeout(() => {
    timer = null;
    if (document.hidden) document.addEventListener("visibilitychange", renewSoon, { once: true });
    else renew().catch(() => {});
  }, SOON_MS);
}

async function renew() {
  // What comes while it is fetched may not be in it.
  const asked = topic.state;
  const response = await fetch(panels.dataset.panels);
  if (!response.ok || response.redirected) return;
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html").body;
  const focused = panels.contains(document.activeElement) ? document.activeElement.closest("form")?.getAttribute("action") : null;
  panels.replaceChildren(...fresh.childNodes);
  if (focused) panels.querySelector(`form[action="${CSS.escape(focused)}"] button`)?.focus({ preventScroll: true });
  for (const [name, host] of Object.entries(asked)) {
    if (!host || panelOf(name)) shapes.set(name, shapeOf(host));
    else delete topic.state[name];
  }
  show(topic.state);
}

// --- Who holds what ----------------------------------------------------------------------------------------------

function element(tag, className, text) {
  const fresh = document.createElement(tag);
  if (className) fresh.className = className;
  fresh.textContent = text;
  return fresh;
}

function nameOf(slot) {
  if (slot.job === null) return element("span", "holder-none", FREE_WORDS[slot.status]);
  const name = element(slot.visible ? "a" : "span", "", slot.label);
  if (slot.visible) name.href = `/jobs/${slot.job}/`;
  return name;
}

function idleFor(slot) {
  return duration(Date.now() - Date.parse(slot.idle_since));
}

function showHolder(slot) {
  const place = rowOf(slot.key)?.querySelector(".holder");
  if (!place) return;
  // Only what changed: a link that has the focus keeps it.
  const held = JSON.stringify([slot.job, slot.label, slot.job === null ? slot.status : ""]);
  if (place.dataset.held !== held) {
    place.dataset.held = held;
    place.replaceChildren(...(slot.job === null ? [] : [jobMark(slot.job)]), nameOf(slot));
  }
  place.querySelector(".holder-idle")?.remove();
  if (slot.status === "idle") place.append(element("span", "holder-idle", `idle for ${idleFor(slot)}`));
  if (slot.status === "vacating") place.append(element("span", "holder-idle", FREE_WORDS.vacating));
}

function cell(label, content, className = "") {
  const td = element("td", className, "");
  td.dataset.label = label;
  td.append(content);
  return td;
}

function idleRow(slot) {
  const row = document.createElement("tr");
  row.dataset.row = slot.key;
  row.append(cell("GPU", slot.key), cell("Held by", nameOf(slot)), cell("Owner", slot.owner ?? "–"), cell("Idle for", idleFor(slot), "number"));
  return row;
}

function showIdle(slots) {
  const place = document.querySelector("#idle .table-wrap");
  if (!place) return;
  const idle = slots.filter((slot) => slot.status === "idle").sort((one, other) => Date.parse(one.idle_since) - Date.parse(other.idle_since));
  place.classList.toggle("is-empty", idle.length === 0);
  replaceRows(place.querySelector("tbody"), idle.map(idleRow));
}

function showHeld(snapshot) {
  const slots = snapshot.hosts.flatMap((host) => host.slots);
  for (const slot of slots) showHolder(slot);
  showIdle(slots);
}

async function askHeld() {
  if (document.hidden) return;
  const response = await fetch("/cluster/live.json", { headers: { Accept: "application/json" } });
  if (response.ok) showHeld(await response.json());
}

function askHeldSoon() {
  heldTimer ??= setTimeout(() => {
    heldTimer = null;
    askHeld().catch(() => {});
  }, HELD_MS);
}

// --- Drain, resume, remove ----------------------------------------------------------------------------------------

//: Busy only until the question is here: a button that is asked again right after "Cancel" asks again.
async function askAndSend(form, button) {
  const answer = await whileBusy(button, async () => {
    const response = await fetch(form.dataset.question, { headers: { Accept: "application/json" } });
    return { ok: response.ok, said: await response.json() };
  });
  if (answer && !answer.ok) say(answer.said.error, { kind: "error" });
  else if (answer && (await ask(answer.said))) form.submit();
}

panels.addEventListener("submit", (event) => {
  if (!event.target.dataset.question) return;
  event.preventDefault();
  askAndSend(event.target, event.submitter).catch(() => say("The server did not answer: nothing was changed. Try again.", { kind: "error" }));
});

const topic = live.watch({ name: "hosts", seq: page.seq, url: "/hosts/live.json", state: page.state, onState: (_, news) => show(news) });
live.watch({
  name: "cluster",
  seq: page.cluster_seq,
  url: "/cluster/live.json",
  onState: (_, news) => {
    if (news.slots || news.hosts) askHeldSoon();
  },
  onSnapshot: showHeld,
});
setInterval(() => askHeld().catch(() => {}), HELD_EVERY_MS);
document.documentElement.dataset.ready = "yes";
