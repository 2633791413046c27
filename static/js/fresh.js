// Parts of a page that the server renders anew. Their `hx-get` says from where; idiomorph changes only what differs, so
// that focus, selection, scrolling, and what a person has chosen or opened stay.

import { isLeaving } from "./busy.js";
import { element } from "./dom.js";
import { refreshTimes } from "./frame.js";
import { atMostEvery, isUrgent, jobOfTopic, live } from "./live.js";
import { isOver } from "./words.js";

const { htmx, Idiomorph } = window;
const SOON_MS = 500;
const LOGIN = "/login/";
//: Between two answers about one part: where GPUs or states change, and where only steps and measurements do.
const URGENT_MS = 250;
export const CALM_MS = 2_000;

//: Chosen boxes, opened details and dialogs, Tab stops and buttons that wait for an answer: the server does not know of them.
Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, element) =>
  !(["checked", "tabindex"].includes(name) || (name === "open" && element.matches("details, dialog")) || element.classList.contains("is-busy"));
//: Elements that a script fills stay as they are.
Idiomorph.defaults.callbacks.beforeNodeMorphed = (node) => !node.dataset || !("own" in node.dataset);
Idiomorph.defaults.callbacks.afterNodeAdded = (node) => node.nodeName === "TR" && node.classList.add("is-new");

export function refresh(part) {
  htmx.trigger(part, "fresh");
}

//: Has the server render `part` as it is at `address`, and answers whether the page shows that. A later request for the same
//: part replaces this one. Pages that say what is wrong with the address are shown, too.
export function renderAt(part, address, options) {
  return new Promise((resolve) => {
    let isShown = false;
    const listeners = {
      "htmx:beforeSwap": ({ detail }) => {
        if (detail.xhr.status === 400) detail.shouldSwap = true;
      },
      "htmx:afterSwap": () => {
        isShown = true;
      },
      // The last event of each request, of those that are not sent or replaced, too.
      "htmx:afterRequest": () => {
        for (const [name, listener] of ours) part.removeEventListener(name, listener);
        resolve(isShown);
      },
    };
    const ours = Object.entries(listeners).map(([name, listener]) => [name, (event) => event.detail.pathInfo.requestPath === address && listener(event)]);
    for (const [name, listener] of ours) part.addEventListener(name, listener);
    htmx.ajax("GET", address, { target: part, source: part, ...options }).catch(() => {}); // htmx:afterRequest has settled the promise
  });
}

//: A function that has the server render this part again, soon.
export function refresher(part, milliseconds = SOON_MS) {
  return atMostEvery(milliseconds, () => refresh(part));
}

//: The same for news of a live topic: what is urgent is asked for at once, unless that was done just now.
export function renewer(part, calm = CALM_MS) {
  let [due, last, timer] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, null];
  const renew = () => {
    [due, last] = [Number.POSITIVE_INFINITY, performance.now()];
    if (document.hidden) document.addEventListener("visibilitychange", renew, { once: true });
    else refresh(part);
  };
  return (urgent) => {
    const at = Math.max(performance.now(), last + (urgent ? URGENT_MS : calm));
    if (at >= due) return;
    clearTimeout(timer);
    due = at;
    timer = setTimeout(renew, at - performance.now());
  };
}

//: Rows of a part say by `data-topic` and `data-seq` which topics they show beside the cluster's; `isShown`, whether of a
//: job's news something is shown.
export function followRows(part, renew, isShown = (news) => news.reason) {
  const followed = new Set();
  const follow = () => {
    const rows = new Map([...part.querySelectorAll("[data-topic]")].map(({ dataset }) => [dataset.topic, Number(dataset.seq)]));
    for (const name of [...followed].filter((name) => !rows.has(name))) {
      followed.delete(name);
      live.unwatch(name);
    }
    for (const [name, seq] of [...rows].filter(([name]) => !followed.has(name))) {
      followed.add(name);
      live.watch({ name, seq, url: `/live/${name}.json`, onState: (_, news) => isShown(news, jobOfTopic(name)) && renew(isUrgent(news)) });
    }
  };
  part.addEventListener("htmx:afterSwap", follow);
  follow();
}

//: Parts of a training that is over no longer change by themselves: they are fetched once.
function isSettled(part) {
  const state = document.querySelector(".job-head .state")?.dataset.state;
  return "whileActive" in part.dataset && part.childElementCount > 0 && state !== undefined && isOver(state);
}

//: A part that is fetched regularly is fetched only while it is visible, and no more once a form's answer replaces the page:
//: the part may belong to an object that the form deletes.
document.addEventListener("htmx:beforeRequest", (event) => {
  const isSeen = !isLeaving() && !document.hidden && (event.detail.requestConfig.triggeringEvent?.type === "fresh" || event.target.checkVisibility());
  if (!isSeen || (!event.detail.requestConfig.triggeringEvent && isSettled(event.target))) event.preventDefault();
});

//: Rights that were withdrawn, or something that was deleted: what the page shows is the past, and its buttons are refused.
document.addEventListener("htmx:responseError", ({ detail }) => {
  if ([403, 404].includes(detail.xhr.status)) showGone();
});

function showGone() {
  const main = document.getElementById("main");
  if (main.querySelector(".page-gone")) return;
  const words = "This page no longer follows: what it shows was deleted, or you may no longer see it. What is below is the state before.";
  for (const actions of main.querySelectorAll(".page-actions")) actions.hidden = true;
  main.prepend(element("div", { className: "alert alert-danger page-gone", role: "alert" }, words));
}

//: After a log-out the server answers with another page than the one requested: the part stays as it is.
document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  const answered = new URL(detail.xhr.responseURL).pathname;
  if (answered === new URL(detail.pathInfo.finalRequestPath, location.href).pathname) return;
  detail.shouldSwap = false;
  if (answered === LOGIN) document.dispatchEvent(new CustomEvent("tidepool:logged-out"));
});

document.addEventListener("htmx:afterSettle", () => refreshTimes());
