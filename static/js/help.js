// "?": the keys that this page has, from what it declares, and the switch that turns single keys off.

import { areKeysOff, declaredKeys, switchKeys } from "./keys.js";

const dialog = document.getElementById("key-help");

const NAMES = { ArrowDown: "↓", ArrowUp: "↑", ArrowLeft: "←", ArrowRight: "→", " ": "Space", Escape: "Esc" };

function kbd(name) {
  const key = document.createElement("kbd");
  const [, control, letter] = name.match(/^(Ctrl\+)?(.*)$/s);
  key.textContent = (control ? "Ctrl " : "") + (NAMES[letter] ?? (control ? letter.toUpperCase() : letter));
  return key;
}

function line({ ways, words }) {
  const row = document.createElement("div");
  const keys = document.createElement("dt");
  ways.forEach((way, index) => {
    if (index) keys.append(" or ");
    keys.append(...way.split(" ").filter(Boolean).map(kbd));
  });
  const what = document.createElement("dd");
  what.textContent = words;
  row.append(keys, what);
  return row;
}

function fill() {
  const declared = declaredKeys();
  for (const list of dialog.querySelectorAll("[data-keys-of]")) {
    const own = declared.filter(({ isOfPage }) => isOfPage === (list.dataset.keysOf === "page"));
    list.replaceChildren(...own.map(line));
    list.closest("section").hidden = own.length === 0;
  }
  dialog.querySelector("input").checked = !areKeysOff();
}

export function showHelp() {
  fill();
  dialog.showModal();
}

dialog?.querySelector("input").addEventListener("change", (event) => switchKeys(event.target.checked));
