// What the advisor says of the curves: asked again while the training makes steps and somebody looks.

const EVERY_MS = 10_000;
const root = document.getElementById("advice");
const job = document.getElementById("job");
let shown = null;

function listItem(text) {
  const item = document.createElement("li");
  item.textContent = text;
  return item;
}

function adviceItem({ severity, text, suggestions }) {
  const item = document.createElement("li");
  item.dataset.severity = severity;
  const sentence = document.createElement("p");
  sentence.textContent = text;
  const details = document.createElement("details");
  const summary = document.createElement("summary");
  summary.textContent = "What to try";
  const list = document.createElement("ul");
  list.append(...suggestions.map(listItem));
  details.append(summary, list);
  item.append(sentence, details);
  return item;
}

function show({ summary, advice }) {
  root.querySelector('[data-field="summary"]').textContent = summary;
  const fresh = JSON.stringify(advice.map(({ text }) => text));
  if (fresh === shown) return;
  shown = fresh;
  // What somebody has opened stays open while the numbers in its sentence move.
  const list = root.querySelector(":scope > ul");
  const open = [...list.children].map((item) => item.querySelector("details").open);
  list.replaceChildren(...advice.map(adviceItem));
  for (const [index, item] of [...list.children].entries()) item.querySelector("details").open = open[index] ?? false;
}

async function ask() {
  if (document.hidden || job.dataset.state !== "RUNNING") return;
  const response = await fetch(root.dataset.url, { headers: { Accept: "application/json" } });
  if (response.ok) show(await response.json());
}

setInterval(() => ask().catch(() => {}), EVERY_MS);
