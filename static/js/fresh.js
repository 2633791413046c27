// Parts of a page that the server renders anew. Their `hx-get` says from where; idiomorph changes only what differs, so
// that focus, selection, scrolling, and what a person has chosen or opened stay.

import { refreshTimes } from "./frame.js";
import { atMostEvery } from "./live.js";

const { htmx, Idiomorph } = window;
const SOON_MS = 500;

//: Chosen boxes, opened details, Tab stops and buttons that wait for an answer: the server does not know of them.
Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, element) =>
  !(["checked", "tabindex"].includes(name) || (name === "open" && element.matches("details")) || element.classList.contains("is-busy"));
Idiomorph.defaults.callbacks.afterNodeAdded = (node) => node.nodeName === "TR" && node.classList.add("is-new");

export function refresh(part) {
  htmx.trigger(part, "fresh");
}

//: A function that has the server render this part again, soon.
export function refresher(part, milliseconds = SOON_MS) {
  return atMostEvery(milliseconds, () => refresh(part));
}

//: What is asked for regularly is asked for only while it can be seen.
document.addEventListener("htmx:beforeRequest", (event) => {
  const isSeen = !document.hidden && (event.detail.requestConfig.triggeringEvent?.type === "fresh" || event.target.checkVisibility());
  if (!isSeen) event.preventDefault();
});

//: Who was logged out gets another page than the one that was asked for.
document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  const answered = new URL(detail.xhr.responseURL).pathname;
  if (answered !== new URL(detail.pathInfo.finalRequestPath, location.href).pathname) detail.shouldSwap = false;
});

document.addEventListener("htmx:afterSettle", () => refreshTimes());
