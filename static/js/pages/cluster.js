// The cluster's page: every GPU now, in a grid that arrow keys walk in, and the trace of who had how many.

import { startGpuUse } from "../gpu_use.js";
import { showPool } from "../pool.js";

const now = document.getElementById("now");
let activeKey = null;

function cells() {
  return [...now.querySelectorAll("td:not(.absent)")];
}

//: One Tab stop: the cell where one was last.
function rove() {
  const all = cells();
  const active = all.find((cell) => cell.id === activeKey) ?? all[0];
  for (const cell of all) cell.tabIndex = cell === active ? 0 : -1;
}

function target(cell, key) {
  const rows = [...cell.closest("tbody").rows].map((row) => [...row.querySelectorAll("td:not(.absent)")]);
  const row = rows.findIndex((others) => others.includes(cell));
  const place = rows[row].indexOf(cell);
  return {
    ArrowLeft: rows[row][place - 1],
    ArrowRight: rows[row][place + 1],
    ArrowUp: rows[row - 1]?.[place],
    ArrowDown: rows[row + 1]?.[place],
    Home: rows[row][0],
    End: rows[row].at(-1),
  }[key];
}

now.addEventListener("keydown", (event) => {
  const cell = event.target.closest("td");
  if (!cell || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Enter") cell.querySelector("a").click();
  const next = target(cell, event.key);
  if (!next) return;
  event.preventDefault();
  next.focus();
});
now.addEventListener("focusin", (event) => {
  activeKey = event.target.closest("td")?.id ?? activeKey;
  rove();
});
now.addEventListener("htmx:afterSwap", rove);
rove();

const { trace } = showPool(now, document.querySelector('[data-chart="cluster-trace"]'), (news) => news.slots || news.hosts);
const renewUse = startGpuUse(document.querySelector('[data-chart="gpu-use"]'), () => `/cluster/gpus.json?minutes=${trace.windowMs / 60_000}`);
trace.onChoice("window", renewUse);
