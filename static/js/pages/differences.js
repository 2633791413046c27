// A line of the parallel coordinates and its row of the table find each other.

const lines = document.querySelector(".parallel-lines");
const rows = document.getElementById("differences");

function point(job) {
  for (const part of [lines, rows]) {
    for (const one of part?.querySelectorAll(".is-current") ?? []) one.classList.remove("is-current");
    if (job) part?.querySelector(`[data-job="${CSS.escape(job)}"]`)?.classList.add("is-current");
  }
  lines?.classList.toggle("has-current", Boolean(job));
}

for (const part of [lines, rows]) {
  part?.addEventListener("pointerover", (event) => point(event.target.closest("[data-job]")?.dataset.job));
  part?.addEventListener("pointerleave", () => point());
}
rows?.addEventListener("focusin", (event) => point(event.target.closest("[data-job]")?.dataset.job));
