// The hosts, kept live: state, last report and readings as they are reported; a host that comes, or is another machine
// than it was, is fetched as the server renders it.

import { setField, showState } from "./fields.js";
import { readJson } from "./figure.js";
import { refreshTimes } from "./frame.js";
import { live } from "./live.js";

//: Hosts that come at once are one fetch.
const SOON_MS = 500;
const FACTS = ["address", "ncpus", "memory_bytes", "ngpus", "virtual"];

const page = readJson("live-hosts");
const panels = document.getElementById("hosts");
//: Host -> what its panel was rendered for.
const shapes = new Map(Object.entries(page.state).map(([name, host]) => [name, shapeOf(host)]));
let timer = null;

//: What makes another panel.
function shapeOf(host) {
  return JSON.stringify([host.last_report_at === null, FACTS.map((name) => host[name]), Object.entries(host.slots).map(([index, slot]) => [index, slot.device_model])]);
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
  const panel = panels.querySelector(`section[data-host="${CSS.escape(name)}"]`);
  showState(panel, host.state);
  const time = panel.querySelector('[data-field="last_report"] time');
  if (time && host.last_report_at) time.dateTime = host.last_report_at;
  for (const [index, slot] of Object.entries(host.slots)) {
    const row = panel.querySelector(`tr[data-slot="${CSS.escape(`${name}:${index}`)}"]`);
    setField(row, "utilisation", rounded(slot.utilisation_percent, "%"));
    setField(row, "memory", memory(slot));
    setField(row, "temperature", rounded(slot.temperature_celsius, "°C"));
    setField(row, "power", rounded(slot.power_watts, "W"));
  }
}

function show(hosts) {
  for (const [name, host] of Object.entries(hosts)) {
    if (shapes.get(name) === shapeOf(host)) showHost(name, host);
    else renewSoon();
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
  panels.replaceChildren(...fresh.childNodes);
  for (const [name, host] of Object.entries(asked)) {
    if (panels.querySelector(`section[data-host="${CSS.escape(name)}"]`)) shapes.set(name, shapeOf(host));
    else delete topic.state[name];
  }
  show(topic.state);
}

const topic = live.watch({ name: "hosts", seq: page.seq, url: "/hosts/live.json", state: page.state, onState: (_, news) => show(news) });
document.documentElement.dataset.ready = "yes";
