// Elements of a page: makes them, and puts values into those that the server rendered. Everything is text, never markup.

import { inWords, percent } from "./words.js";

//: Functions listen, other values are properties, or attributes where the element has no such property:
//: element("button", { type: "button", "aria-label": "Close the message", click: close }, "Close").
export function element(tag, values = {}, ...children) {
  const fresh = document.createElement(tag);
  for (const [name, value] of Object.entries(values)) {
    if (typeof value === "function") fresh.addEventListener(name, value);
    else if (name in fresh) fresh[name] = value;
    else fresh.setAttribute(name, value);
  }
  fresh.append(...children);
  return fresh;
}

//: `refreshTimes` of frame.js fills in the words.
export function timeElement(at) {
  return element("time", { dateTime: at, "data-relative": "" });
}

export function showList(list, sentences) {
  list.replaceChildren(...sentences.map((sentence) => element("li", {}, sentence)));
}

export function setField(root, name, text) {
  for (const field of root.querySelectorAll(`[data-field="${name}"]`)) {
    if (field.textContent !== text) field.textContent = text;
  }
}

export function showState(root, state) {
  const badge = root.querySelector(".state");
  if (!badge || badge.dataset.state === state) return;
  badge.dataset.state = state;
  badge.querySelector(".state-word").textContent = inWords(state);
}

export function showProgress(root, progress) {
  setField(root, "progress", percent(progress));
  const bar = root.querySelector("progress");
  if (bar) bar.value = progress ?? 0;
}

//: Presses the buttons that have this value in the attribute, and releases the others.
export function press(buttons, name, value) {
  for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset[name] === value));
}

//: Index that a key leads to from index `at` (-1: none yet) in a row of `count`; undefined for any other key.
export function placeAfter(key, at, count) {
  if (["ArrowRight", "ArrowDown"].includes(key)) return (at + 1) % count;
  if (["ArrowLeft", "ArrowUp"].includes(key)) return (Math.max(at, 0) + count - 1) % count;
  return { Home: 0, End: count - 1 }[key];
}
