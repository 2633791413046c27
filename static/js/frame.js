// Parts of every page: the theme menu, relative times, rows that are links, and the modules imported below.

import "./ask.js";
import "./busy.js";
import "./clashes.js";
import "./drafts.js";
import { showHelp } from "./keys.js";
import "./logged_out.js";
import "./menus.js";
import { showPalette } from "./palette.js";
import "./printing.js";
import "./tabs.js";
import { exactTime, relativeTime } from "./words.js";

const systemDark = matchMedia("(prefers-color-scheme: dark)");

function themeChoice() {
  return localStorage.getItem("tidepool-theme") || "auto";
}

function applyTheme() {
  const choice = themeChoice();
  const dark = choice === "dark" || (choice === "auto" && systemDark.matches);
  document.documentElement.dataset.bsTheme = dark ? "dark" : "light";
  for (const button of document.querySelectorAll("#theme-menu [data-theme]")) {
    button.setAttribute("aria-pressed", String(button.dataset.theme === choice));
  }
  document.dispatchEvent(new CustomEvent("tidepool:theme"));
}

export function refreshTimes(root = document) {
  for (const time of root.querySelectorAll("time[data-relative]")) {
    const words = relativeTime(new Date(time.dateTime));
    if (time.textContent !== words) time.textContent = words;
    time.title = exactTime(new Date(time.dateTime));
  }
  for (const time of root.querySelectorAll("time[data-exact]")) time.textContent = exactTime(new Date(time.dateTime));
}

function openRow(event) {
  const row = event.target.closest("tr[data-href]");
  if (!row || event.target.closest("a, button, input, label") || getSelection().toString()) return;
  if (event.ctrlKey || event.metaKey) open(row.dataset.href, "_blank", "noopener");
  else location.assign(row.dataset.href);
}

//: The focus follows what became of a form: to the errors, or to the notice. Otherwise it would be lost with the page before.
function focusOutcome() {
  const outcome = document.querySelector("#form-errors, main .clashes, main > [data-notice]");
  if (!outcome || document.activeElement !== document.body) return;
  outcome.tabIndex = -1;
  outcome.focus({ preventScroll: location.hash !== "" });
}

//: Repeats the server's notices after the page has loaded: a screen reader announces only changes.
function readNoticesAloud() {
  const words = [...document.querySelectorAll('[data-notice][role="status"]:not(:focus)')].map((notice) => notice.firstChild.textContent.trim());
  if (!words.length) return;
  const heard = document.createElement("span");
  heard.className = "visually-hidden";
  heard.textContent = words.join(" ");
  document.getElementById("toasts").append(heard);
}

document.getElementById("theme-menu")?.addEventListener("click", (event) => {
  const button = event.target.closest("[data-theme]");
  if (!button) return;
  localStorage.setItem("tidepool-theme", button.dataset.theme);
  applyTheme();
});
document.getElementById("show-palette")?.addEventListener("click", showPalette);
document.getElementById("show-help")?.addEventListener("click", showHelp);
systemDark.addEventListener("change", applyTheme);
document.addEventListener("click", openRow);

applyTheme();
refreshTimes();
setInterval(refreshTimes, 10_000);
focusOutcome();
readNoticesAloud();
