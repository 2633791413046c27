// Keys that elements of the page declare:
//
//   data-key="t"  or  data-key="g j"      one key, or two after each other; several ways: data-key="j|ArrowDown"
//   data-key-words="Go to the jobs"       what the help says; without it the element's own text
//
// A link or button is pressed, a field gets the focus. For what is no element, such as "the next row", declare
// <span hidden data-key="j" data-key-words="Next job"></span> where it belongs: it sends "tidepool:key" from there.
//
// Keys do nothing while one types, or while a dialog is open. Single keys can be switched off in the help: programs that
// are steered by voice type letters by accident. Those with Ctrl stay.

const PAUSE_MS = 1_500;
const OFF = "tidepool-keys-off";
const FIELDS = "input:not([type=checkbox], [type=radio], [type=button], [type=submit]), select, textarea, [contenteditable]";

let typed = "";
let typedAt = 0;

export function areKeysOff() {
  return localStorage.getItem(OFF) !== null;
}

export function switchKeys(on) {
  if (on) localStorage.removeItem(OFF);
  else localStorage.setItem(OFF, "yes");
}

function isUsable(element) {
  const place = element.tagName === "SPAN" ? element.parentElement : element;
  return !place.closest("[hidden], .tab-pane:not(.active), :disabled");
}

//: What can be pressed now, the page's own first: [{element, ways, words, isOfPage}].
export function declaredKeys() {
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
  if (!hasControl && (areKeysOff() || event.target.closest?.(FIELDS) || document.querySelector("dialog[open], .offcanvas.show, .dropdown-menu.show"))) return;
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
