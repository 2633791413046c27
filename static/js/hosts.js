// The hosts: state, last report and readings. Readings change all the time, so the page asks every few seconds.

import { refreshTimes } from "./frame.js";
import { showState } from "./fields.js";

const EVERY_MS = 5_000;

function size(bytes) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) [bytes, unit] = [bytes / 1024, unit + 1];
  return `${unit ? bytes.toFixed(1) : bytes} ${units[unit]}`;
}

function showHost(name, host) {
  const panel = document.querySelector(`section[data-host="${CSS.escape(name)}"]`);
  if (!panel) return;
  showState(panel, host.state);
  const time = panel.querySelector('[data-field="last_report"] time');
  if (time && host.last_report_at) time.dateTime = host.last_report_at;
  for (const [index, reading] of Object.entries(host.slots)) {
    const row = panel.querySelector(`tr[data-slot="${CSS.escape(`${name}:${index}`)}"]`);
    if (!row) continue;
    const busy = reading.utilisation_percent;
    row.querySelector('[data-field="utilisation"]').textContent = busy === null ? "–" : `${Math.round(busy)} %`;
    const total = reading.memory_total_bytes ? ` of ${size(reading.memory_total_bytes)}` : "";
    row.querySelector('[data-field="memory"]').textContent = reading.memory_used_bytes === null ? "–" : size(reading.memory_used_bytes) + total;
  }
}

async function refresh() {
  if (document.hidden) return;
  const response = await fetch("/hosts/live.json");
  if (!response.ok) return;
  for (const [name, host] of Object.entries(await response.json())) showHost(name, host);
  refreshTimes();
}

setInterval(() => refresh().catch(() => {}), EVERY_MS);
