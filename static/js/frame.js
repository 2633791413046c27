// What every page has: the theme menu, relative times, rows that are links, and tabs that can be shared.

import { relativeTime } from "./words.js";

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
    time.textContent = relativeTime(new Date(time.dateTime));
    time.title = new Date(time.dateTime).toLocaleString();
  }
}

function openRow(event) {
  const row = event.target.closest("tr[data-href]");
  if (!row || event.target.closest("a, button, input, label") || getSelection().toString()) return;
  if (event.ctrlKey || event.metaKey) open(row.dataset.href, "_blank", "noopener");
  else location.assign(row.dataset.href);
}

function openTabOfAddress() {
  const tab = location.hash && document.querySelector(`[data-bs-toggle="tab"][href="${CSS.escape(location.hash)}"], [data-bs-toggle="tab"][data-bs-target="#${CSS.escape(location.hash.slice(1))}"]`);
  if (tab) window.bootstrap.Tab.getOrCreateInstance(tab).show();
}

document.getElementById("theme-menu")?.addEventListener("click", (event) => {
  const button = event.target.closest("[data-theme]");
  if (!button) return;
  localStorage.setItem("tidepool-theme", button.dataset.theme);
  applyTheme();
});
systemDark.addEventListener("change", applyTheme);
document.addEventListener("click", openRow);
document.addEventListener("shown.bs.tab", (event) => {
  const target = event.target.dataset.bsTarget;
  if (target) history.replaceState(null, "", target);
});
addEventListener("hashchange", openTabOfAddress);

applyTheme();
refreshTimes();
setInterval(refreshTimes, 10_000);
openTabOfAddress();
