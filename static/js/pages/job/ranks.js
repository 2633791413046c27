// The processes of a job, the newest first, with what their GPUs do: read again while somebody looks.

import { refreshTimes } from "../../frame.js";
import { fetchJson } from "../../live.js";
import { bytes, inWords } from "../../words.js";
import { cell, isShown, timeElement } from "./rows.js";

//: Hosts report readings each second.
const READ_MS = 2_000;
const MAX_ROWS = 500;

export function start(page) {
  const address = `/api/v1/jobs/${page.job}/ranks/`;
  const read = async () => isShown("ranks") && showRanks((await fetchJson(address)).results);
  document.addEventListener("shown.bs.tab", () => read().catch(() => {}));
  setInterval(() => read().catch(() => {}), READ_MS);
  showRanks(page.ranks);
  return { showSnapshot: (snapshot) => showRanks(snapshot.ranks) };
}

function ending(exit) {
  if (!exit) return "–";
  const how = exit.signal ? `signal ${exit.signal}` : `exit ${exit.code}`;
  return exit.error?.message ? `${how}: ${exit.error.message}` : how;
}

function showRanks(ranks) {
  const body = document.getElementById("rank-rows");
  const rows = [...ranks].reverse().sort((one, other) => Boolean(one.exit) - Boolean(other.exit));
  body.replaceChildren(
    ...rows.slice(0, MAX_ROWS).map((rank) => {
      const row = document.createElement("tr");
      cell(row, "Rank", rank.rank, "number");
      cell(row, "State", inWords(rank.state));
      cell(row, "Host", rank.host);
      cell(row, "GPU", `${rank.slot}${rank.gpu?.virtual ? " (virtual)" : ""}`).title = rank.gpu?.model ?? "";
      cell(row, "Busy", busy(rank.gpu), "number");
      cell(row, "Memory", memory(rank.gpu), "number");
      cell(row, "Process", rank.pid, "number");
      cell(row, "Id", rank.member_id, "mono");
      cell(row, "Attempt", rank.attempt, "number");
      cell(row, "Started", timeElement(rank.started_at));
      cell(row, "Ended with", ending(rank.exit));
      return row;
    }),
  );
  body.closest(".table-wrap").classList.toggle("is-empty", ranks.length === 0);
  document.getElementById("ranks-note").textContent = note(ranks, rows.length);
  refreshTimes(body);
}

function note(ranks, count) {
  const parts = [];
  if (ranks.some((rank) => rank.gpu?.virtual))
    parts.push("Its GPUs are virtual: a CPU process stands in for each, and its readings are those of that process.");
  if (count > MAX_ROWS) parts.push(`Shown: the newest ${MAX_ROWS} of ${count}.`);
  return parts.join(" ");
}

function busy(gpu) {
  return gpu?.utilisation_percent === null || gpu?.utilisation_percent === undefined ? "–" : `${Math.round(gpu.utilisation_percent)} %`;
}

function memory(gpu) {
  if (gpu?.memory_used_bytes === null || gpu?.memory_used_bytes === undefined) return "–";
  return gpu.memory_total_bytes ? `${bytes(gpu.memory_used_bytes)} of ${bytes(gpu.memory_total_bytes)}` : bytes(gpu.memory_used_bytes);
}
