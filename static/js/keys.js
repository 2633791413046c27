// Keys that elements of the page declare:
//
//   data-key="t"  or  data-key="g j"      one key, or two after each other; several ways: data-key="j|ArrowDown"
//   data-key-words="Go to the trainings"       what the help says; without it the element's own text
//
// A link or button is pressed, a field gets the focus. For what is no element, such as "the next row", declare
// <span hidden data-key="j" data-key-words="Next job"></span> where it belongs: it sends "tidepool:key" from there.
//
// Keys do nothing while one types, or while a dialog is open. Single keys can be switched off in the help: programs that
// are steered by voice type letters by accident. Those with Ctrl stay. The help on "?" has what the page declares.

import { element } from "./dom.js";

const PAUSE_MS = 1_500;
const OFF = "tidepool-keys-off";
const FIELDS = "input:not([type=checkbox], [type=radio], [type=button], [type=submit]), select, textarea, [contenteditable]";

let typed = "";
let typedAt = 0;

function areKeysOff() {
  return localStorage.getItem(OFF) !== null;
}

function isUsable(element) {
  const place = element.tagName === "SPAN" ? element.parentElement : element;
  return !place.closest("[hidden], .tab-pane:not(.active), :disabled");
}

//: Keys that work now, the page's own first: [{element, ways, words, isOfPage}].
function declaredKeys() {
  const found = [...document.querySelectorAll("[data-key]")].filter(isUsable).map((element) => ({
    element,
    ways: element.dataset.key.split("|"),
    words: element.dataset.keyWords || element.textContent.trim(),
    isOfPage: element.closest("main") !== null,
  }));
  return found.sort((one, other) => other.isOfPage - one.isOfPage);
}

function press({ element }, way) {
  if (element.tagName === "SPAN") {
    element.dispatchEvent(new CustomEvent("tidepool:key", { bubbles: true, detail: { key: way } }));
  } else if (element.matches(FIELDS)) {
    element.focus();
    element.select?.();
  } else {
    element.click();
  }
}

function nameOf(event) {
  return event.ctrlKey || event.metaKey ? `Ctrl+${event.key.toLowerCase()}` : event.key;
}

//: The key, or with one before it that began a pair: "g j".
function candidates(name, now) {
  const pair = typed && now - typedAt < PAUSE_MS ? [`${typed} ${name}`] : [];
  return [...pair, name];
}

function onKey(event) {
  if (event.altKey || event.isComposing) return;
  const name = nameOf(event);
  const hasControl = name.startsWith("Ctrl+");
  if (!hasControl && (areKeysOff() || event.target.closest?.(FIELDS) || document.querySelector("dialog[open], :popover-open"))) return;
  const declared = declaredKeys();
  for (const way of candidates(name, event.timeStamp)) {
    const found = declared.find(({ ways }) => ways.includes(way));
    if (!found) continue;
    typed = "";
    event.preventDefault();
    press(found, way);
    return;
  }
  const begins = !hasControl && declared.some(({ ways }) => ways.some((way) => way.startsWith(`${name} `)));
  typed = begins ? name : "";
  typedAt = event.timeStamp;
}

document.addEventListener("keydown", onKey);

// --- The help ----------------------------------------------------------------------------------------------------

const help = document.getElementById("key-help");
const NAMES = { ArrowDown: "↓", ArrowUp: "↑", ArrowLeft: "←", ArrowRight: "→", " ": "Space", Escape: "Esc" };

function kbd(name) {
  const [, control, letter] = name.match(/^(Ctrl\+)?(.*)$/s);
  return element("kbd", {}, (control ? "Ctrl " : "") + (NAMES[letter] ?? (control ? letter.toUpperCase() : letter)));
}

function line({ ways, words }) {
  const keys = ways.flatMap((way, index) => [...(index ? [" or "] : []), ...way.split(" ").filter(Boolean).map(kbd)]);
  return element("div", {}, element("dt", {}, ...keys), element("dd", {}, words));
}

export function showHelp() {
  const declared = declaredKeys();
  for (const list of help.querySelectorAll("[data-keys-of]")) {
    const own = declared.filter(({ isOfPage }) => isOfPage === (list.dataset.keysOf === "page"));
    list.replaceChildren(...own.map(line));
    list.closest("section").hidden = own.length === 0;
  }
  help.querySelector("input").checked = !areKeysOff();
  help.showModal();
}

help?.querySelector("input").addEventListener("change", ({ target }) => {
  if (target.checked) localStorage.removeItem(OFF);
  else localStorage.setItem(OFF, "yes");
});
