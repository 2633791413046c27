// What a job leaves: checkpoints to go on from, and files.

import { replaceRows } from "../../fields.js";
import { refreshTimes } from "../../frame.js";
import { fetchJson } from "../../live.js";
import { bytes } from "../../words.js";
import { cell, isShown, link, timeElement } from "./rows.js";

const READ_MS = 5_000;

export function start(page) {
  const body = document.getElementById("checkpoint-rows");

  function uses(checkpoint) {
    if (checkpoint.problem) return `Cannot be used: ${checkpoint.problem}`;
    const box = document.createElement("span");
    const train = `${body.dataset.train}&start_from=checkpoint`;
    box.append(
      link(`${train}-${checkpoint.id}`, "Continue it"),
      " · ",
      link(`${train}weights-${checkpoint.id}`, "Use its weights"),
      " · ",
      link(`/api/v1/jobs/${page.job}/checkpoints/${checkpoint.id}/download/`, "Download", true),
    );
    return box;
  }

  function show(rows) {
    replaceRows(
      body,
      rows.map((checkpoint) => {
        const row = document.createElement("tr");
        row.dataset.row = checkpoint.id;
        cell(row, "Step", checkpoint.step, "number");
        cell(row, "Epoch", checkpoint.epoch, "number");
        cell(row, "Written", timeElement(checkpoint.created_at));
        cell(row, "Size", bytes(checkpoint.size_bytes), "number");
        cell(row, "Use", uses(checkpoint));
        return row;
      }),
    );
    body.closest(".table-wrap").classList.toggle("is-empty", rows.length === 0);
    refreshTimes(body);
  }

  async function read() {
    if (!isShown("results")) return;
    const address = `/api/v1/jobs/${page.job}/`;
    const [checkpoints, files] = await Promise.all([fetchJson(`${address}checkpoints/`), fetchJson(`${address}files/`)]);
    show(checkpoints.results);
    showFiles(files.results, `${address}files/download/`);
  }

  document.addEventListener("shown.bs.tab", () => read().catch(() => {}));
  setInterval(() => read().catch(() => {}), READ_MS);
  return {};
}

function showFiles(files, address) {
  const body = document.getElementById("file-rows");
  replaceRows(
    body,
    files.map((file) => {
      const row = document.createElement("tr");
      row.dataset.row = file.path;
      cell(row, "File", file.path, "mono");
      cell(row, "Size", bytes(file.size_bytes), "number");
      cell(row, "Written", timeElement(file.modified_at));
      cell(row, "Use", link(`${address}?${new URLSearchParams({ path: file.path })}`, "Download", true));
      return row;
    }),
  );
  body.closest(".table-wrap").classList.toggle("is-empty", files.length === 0);
  refreshTimes(body);
}
