// The hosts, kept live: readings as they are reported; everything else, such as a host that comes and who holds which
// GPU, as the server renders it.

import { ask } from "../ask.js";
import { whileBusy } from "../busy.js";
import { setField } from "../fields.js";
import { readJson } from "../figure.js";
import { refreshTimes } from "../frame.js";
import { refresher } from "../fresh.js";
import { live } from "../live.js";
import { say } from "../toasts.js";
import { binaryBytes } from "../words.js";

const page = readJson("live-hosts");
const panels = document.getElementById("hosts");
const renewSoon = refresher(panels);
//: Host -> what decides how its panel looks, but for the readings.
const shapes = new Map(Object.entries(page.state).map(([name, host]) => [name, shapeOf(host)]));

function shapeOf(host) {
  if (!host) return "";
  const { last_report_at: reportedAt, slots, ...facts } = host;
  return JSON.stringify([facts, reportedAt === null, Object.entries(slots).map(([index, slot]) => [index, slot.device_model])]);
}

function memory(slot) {
  if (slot.memory_used_bytes === null) return "–";
  return binaryBytes(slot.memory_used_bytes) + (slot.memory_total_bytes ? ` of ${binaryBytes(slot.memory_total_bytes)}` : "");
}

function rounded(value, unit) {
  return value === null ? "–" : `${Math.round(value)} ${unit}`;
}

function showReadings(name, host) {
  const panel = panels.querySelector(`section[data-host="${CSS.escape(name)}"]`);
  const time = panel?.querySelector('[data-field="last_report"] time');
  if (time && host.last_report_at) time.dateTime = host.last_report_at;
  for (const [index, slot] of Object.entries(host.slots)) {
    const row = panel?.querySelector(`tr[data-slot="${CSS.escape(`${name}:${index}`)}"]`);
    if (!row) continue;
    setField(row, "utilisation", rounded(slot.utilisation_percent, "%"));
    setField(row, "memory", memory(slot));
    setField(row, "temperature", rounded(slot.temperature_celsius, "°C"));
    setField(row, "power", rounded(slot.power_watts, "W"));
  }
}

function show(hosts) {
  for (const [name, host] of Object.entries(hosts)) {
    const shape = shapeOf(host);
    if (shapes.get(name) !== shape) renewSoon();
    shapes.set(name, shape);
    if (host) showReadings(name, host);
  }
  refreshTimes(panels);
}

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

live.watch({ name: "hosts", seq: page.seq, url: "/hosts/live.json", state: page.state, onState: (_, news) => show(news) });
live.watch({
  name: "cluster",
  seq: page.cluster_seq,
  url: "/cluster/live.json",
  onState: (_, news) => (news.slots || news.hosts) && renewSoon(),
  onSnapshot: renewSoon,
});
document.documentElement.dataset.ready = "yes";
