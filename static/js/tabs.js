// Tabs of a page (https://www.w3.org/WAI/ARIA/apg/patterns/tabs/). Arrows go from one to the next, and the address names the
// one that is shown. "tidepool:tab" says that another is.

import { placeAfter } from "./dom.js";

function nameOf(tab) {
  return tab.getAttribute("aria-controls");
}

function tabsBeside(tab) {
  return [...tab.closest("[role=tablist]").querySelectorAll("[role=tab]")];
}

function show(tab) {
  if (tab.ariaSelected === "true") return;
  for (const each of tabsBeside(tab)) {
    const isShown = each === tab;
    each.ariaSelected = String(isShown);
    each.tabIndex = isShown ? 0 : -1;
    each.classList.toggle("active", isShown);
    document.getElementById(nameOf(each)).classList.toggle("active", isShown);
  }
  history.replaceState(null, "", `#${nameOf(tab)}`);
  tab.dispatchEvent(new CustomEvent("tidepool:tab", { bubbles: true }));
}

function showTabOfAddress() {
  const tab = [...document.querySelectorAll("[role=tab]")].find((each) => `#${nameOf(each)}` === location.hash);
  if (tab) show(tab);
}

function onKey(event) {
  const tab = event.target.closest?.("[role=tab]");
  if (!tab || event.altKey || event.ctrlKey || event.metaKey) return;
  const tabs = tabsBeside(tab);
  const next = tabs[placeAfter(event.key, tabs.indexOf(tab), tabs.length)];
  if (!next) return;
  event.preventDefault();
  next.focus();
  show(next);
}

document.addEventListener("click", (event) => {
  const tab = event.target.closest("[role=tab]");
  if (tab) show(tab);
});
document.addEventListener("keydown", onKey);
addEventListener("hashchange", showTabOfAddress);

showTabOfAddress();
