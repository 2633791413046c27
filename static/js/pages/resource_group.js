// A resource group as it is filled in: the server is asked what it would offer and who would move off. Everything is
// text, never markup.

import { whileBusy } from "../busy.js";
import { element, setField, showState } from "../dom.js";
import { readJson } from "../figure.js";
import { CLUSTER_TOPIC, live } from "../live.js";
import { watchPreview } from "../preview.js";

const COOKIE = "tidepool_member_columns";
const YEAR_SECONDS = 365 * 86_400;

const form = document.getElementById("group-form");
const summary = document.getElementById("summary");
const table = document.getElementById("members");
const trouble = summary.querySelector("[data-trouble]");

function rows() {
  return table ? [...table.tBodies[0].rows] : [];
}

function fillList(list, sentences, none) {
  const className = sentences.length ? "" : "hint";
  list.replaceChildren(...(sentences.length ? sentences : [none]).map((sentence) => element("li", { className }, sentence)));
}

// --- Answers of the server ---------------------------------------------------------------------------------------

function showCarets(carets) {
  for (const place of form.querySelectorAll("[data-caret]")) {
    place.textContent = carets[place.dataset.caret] ?? "";
    place.hidden = !place.textContent;
  }
}

function showMembers(hosts) {
  for (const row of rows()) {
    const host = hosts[row.dataset.host];
    if (!host) continue;
    // A box that was ticked meanwhile stays ticked: the answer is about the earlier state.
    if (!isStatic()) row.querySelector("input[type=checkbox]").checked = host.member;
    setField(row, "slots", host.slots === null ? "–" : String(host.slots));
    setField(row, "problem", host.problem);
    setField(row, "free", host.free === null ? "–" : String(host.free));
  }
}

function show(_, { hosts, totals, moves, overlaps }, { carets }) {
  trouble.hidden = true;
  showCarets(carets);
  showMembers(hosts);
  for (const [name, count] of Object.entries(totals)) setField(summary, name, String(count));
  const moving = summary.querySelector("[data-moves] ul");
  if (moving) fillList(moving, moves, "None.");
  if (overlaps) fillList(summary.querySelector("[data-overlaps]"), overlaps, "No other group offers any of these slots.");
  else summary.querySelector("[data-overlaps]").replaceChildren(); // they were those of another rule
}

function isStatic() {
  return form.elements.namedItem("selection").value === "static";
}

//: The boxes say who is a member; only a list of names is made by ticking them.
form.addEventListener("input", () => {
  for (const box of form.querySelectorAll("input[name=hosts]")) box.disabled = !isStatic();
});

const ask = watchPreview(form, summary, {
  show,
  showNothing() {
    trouble.hidden = false;
  },
});
document.getElementById("check-overlaps")?.addEventListener("click", ({ currentTarget }) => whileBusy(currentTarget, () => ask({ overlaps: "yes" })));

// --- The table ---------------------------------------------------------------------------------------------------

function findHosts(text) {
  const wanted = text.trim().toLowerCase();
  const all = rows();
  for (const row of all) row.hidden = !row.dataset.host.toLowerCase().includes(wanted);
  const found = all.filter((row) => !row.hidden).length;
  form.querySelector("[data-found]").textContent = wanted ? `${found} of ${all.length} hosts` : "";
}

const finder = document.getElementById("find-host");
finder.addEventListener("input", (event) => {
  event.stopPropagation(); // the finder is not a field of the form
  findHosts(finder.value);
});
finder.addEventListener("keydown", (event) => {
  if (event.key === "Enter") event.preventDefault(); // the finder works while one types, and Enter must not send the form
});

const preferences = document.getElementById("preferences");

function chosenColumns() {
  return [...preferences.querySelectorAll("input[name=column]:checked")].map((box) => box.value);
}

preferences.addEventListener("close", () => {
  if (preferences.returnValue !== "apply") {
    const shown = new Set([...(table?.querySelectorAll("th[data-column]:not([hidden])") ?? [])].map((head) => head.dataset.column));
    for (const box of preferences.querySelectorAll("input[name=column]")) box.checked = shown.has(box.value);
    return;
  }
  const columns = chosenColumns();
  // biome-ignore lint/suspicious/noDocumentCookie: the Cookie Store API is only there over TLS
  document.cookie = `${COOKIE}=${columns.join(".")}; path=/resource-groups/; max-age=${YEAR_SECONDS}; samesite=lax`;
  for (const cell of table?.querySelectorAll("[data-column]") ?? []) cell.hidden = !columns.includes(cell.dataset.column);
  preferences.returnValue = "";
});

// --- Live --------------------------------------------------------------------------------------------------------

live.watch({
  name: CLUSTER_TOPIC,
  seq: readJson("live-cluster").seq,
  onState: (_, { hosts = {} }) => {
    for (const row of rows()) if (hosts[row.dataset.host]) showState(row, hosts[row.dataset.host].state);
  },
});
