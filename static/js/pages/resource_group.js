// A resource group as it is filled in: the server is asked what it would offer and who would move off. Everything is
// text, never markup.

import { whileBusy } from "../busy.js";
import { setField, showState } from "../fields.js";
import { readJson } from "../figure.js";
import { live } from "../live.js";
import { showBeside } from "../preview.js";

const PAUSE_MS = 250;
const COOKIE = "tidepool_member_columns";
const YEAR_SECONDS = 365 * 86_400;

const form = document.getElementById("group-form");
const summary = document.getElementById("summary");
const table = document.getElementById("members");
const touched = new Set();
let timer = 0;
let asking = null;

function rows() {
  return table ? [...table.tBodies[0].rows] : [];
}

function fillList(list, sentences, none) {
  const items = (sentences.length ? sentences : [none]).map((sentence) => {
    const item = document.createElement("li");
    item.textContent = sentence;
    item.className = sentences.length ? "" : "hint";
    return item;
  });
  list.replaceChildren(...items);
}

// --- What the server says ----------------------------------------------------------------------------------------

function showErrors(errors, carets) {
  for (const name of touched) {
    const input = form.elements.namedItem(name);
    if (input?.id) showBeside(input, errors[name] ?? []);
  }
  for (const place of form.querySelectorAll("[data-caret]")) {
    place.textContent = carets[place.dataset.caret] ?? "";
    place.hidden = !place.textContent;
  }
}

function showMembers(hosts) {
  for (const row of rows()) {
    const host = hosts[row.dataset.host];
    if (!host) continue;
    // What was ticked meanwhile stays ticked: the answer is about what there was before.
    if (!isStatic()) row.querySelector("input[type=checkbox]").checked = host.member;
    setField(row, "slots", host.slots === null ? "–" : String(host.slots));
    setField(row, "problem", host.problem);
    setField(row, "free", host.free === null ? "–" : String(host.free));
  }
}

function showPreview({ hosts, totals, moves, overlaps }) {
  showMembers(hosts);
  for (const [name, count] of Object.entries(totals)) setField(summary, name, String(count));
  const moving = summary.querySelector("[data-moves] ul");
  if (moving) fillList(moving, moves, "None.");
  if (overlaps) fillList(summary.querySelector("[data-overlaps]"), overlaps, "No other group offers any of these slots.");
  else summary.querySelector("[data-overlaps]").replaceChildren(); // they were those of another rule
}

async function ask({ overlaps = false } = {}) {
  asking?.abort();
  const mine = new AbortController();
  asking = mine;
  const body = new FormData(form);
  if (overlaps) body.set("overlaps", "yes");
  const trouble = summary.querySelector("[data-trouble]");
  try {
    const response = await fetch(form.getAttribute("data-preview"), { method: "POST", body, signal: mine.signal, headers: { Accept: "application/json" } });
    if (!response.ok) throw new Error(`status ${response.status}`);
    const { preview, errors, carets } = await response.json();
    showErrors(errors, carets);
    showPreview(preview);
    trouble.hidden = true;
  } catch {
    if (mine.signal.aborted) return;
    trouble.hidden = false;
  }
  summary.setAttribute("aria-busy", "false");
}

function askSoon() {
  summary.setAttribute("aria-busy", "true");
  clearTimeout(timer);
  timer = setTimeout(ask, PAUSE_MS);
}

function isStatic() {
  return form.elements.namedItem("selection").value === "static";
}

form.addEventListener("input", (event) => {
  if (event.target.id === "find-host") return;
  if (event.target.name) touched.add(event.target.name);
  // The boxes say who is a member; only a list of names is made by ticking them.
  for (const box of form.querySelectorAll("input[name=hosts]")) box.disabled = !isStatic();
  askSoon();
});

document.getElementById("check-overlaps")?.addEventListener("click", (event) => {
  clearTimeout(timer);
  whileBusy(event.currentTarget, () => ask({ overlaps: true }));
});

// --- The table ---------------------------------------------------------------------------------------------------

function findHosts(text) {
  const wanted = text.trim().toLowerCase();
  const all = rows();
  for (const row of all) row.hidden = !row.dataset.host.toLowerCase().includes(wanted);
  const found = all.filter((row) => !row.hidden).length;
  form.querySelector("[data-found]").textContent = wanted ? `${found} of ${all.length} hosts` : "";
}

document.getElementById("find-host").addEventListener("input", (event) => findHosts(event.target.value));
document.getElementById("find-host").addEventListener("keydown", (event) => {
  if (event.key === "Enter") event.preventDefault(); // it finds as one types, and sends nothing
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
  name: "hosts",
  seq: readJson("live-hosts").seq,
  url: "/hosts/live.json",
  onState: (_, news) => {
    for (const row of rows()) if (news[row.dataset.host]) showState(row, news[row.dataset.host].state);
  },
});
