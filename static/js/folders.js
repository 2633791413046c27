// Picks a folder of the server, by pointer or by keyboard: <button data-browse="<id of the field>" data-what="training
// folder"> in a form with `data-folders`. The server says what may be seen. With `data-files=".py"`, also such a file.

import { element } from "./dom.js";
import { sizeWords } from "./words.js";

const dialog = document.getElementById("folders");
const list = dialog.querySelector(".folders-list");
const trail = dialog.querySelector(".folders-trail");
const more = dialog.querySelector("[data-more]");
const pick = dialog.querySelector("[data-pick]");
const folderIcon = dialog.querySelector("template");
let address = "";
let suffix = "";
let target = null;
let here = null;
let asked = 0;

function say(name, words) {
  dialog.querySelector(`[data-field="${name}"]`).textContent = words;
}

async function ask(path, after = "") {
  const response = await fetch(`${address}&${new URLSearchParams({ path, after })}`, { headers: { Accept: "application/json" } });
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.error ?? "The server did not answer. Try again.");
  return answer;
}

function entryElement(entry) {
  if (!entry.is_folder) {
    const words = [entry.name, ` ${sizeWords(entry.size_bytes)}`];
    if (!suffix || !entry.name.endsWith(suffix)) return element("li", {}, element("span", { className: "file" }, ...words));
    return element("li", {}, element("button", { type: "button", className: "file", click: () => take(entry.path) }, ...words));
  }
  const icon = folderIcon.content.cloneNode(true);
  return element("li", {}, element("button", { type: "button", click: () => open(entry.path) }, icon, entry.name));
}

function showTrail() {
  const steps = here.trail.map(([name, path]) => element("button", { type: "button", click: () => open(path) }, name));
  steps.at(-1).setAttribute("aria-current", "true");
  trail.replaceChildren(...steps.map((step) => element("li", {}, step)));
}

function showState() {
  const count = list.children.length;
  say("words", count ? `${count}${here.next ? " and more" : ""} in this folder.` : "This folder is empty.");
  more.hidden = !here.next;
  pick.disabled = here.is_root;
}

//: Nothing can be picked until the folder is there: what is shown meanwhile is the one before. The last one asked for wins.
async function open(path, focusOn = "") {
  const number = ++asked;
  pick.disabled = true;
  let answer;
  try {
    answer = await ask(path);
  } catch (error) {
    if (number !== asked) return true;
    say("problem", error.message);
    pick.disabled = here?.is_root ?? true;
    return false;
  }
  if (number !== asked) return true;
  say("problem", "");
  here = answer;
  showTrail();
  list.replaceChildren(...here.entries.map(entryElement));
  showState();
  const back = here.entries.findIndex((entry) => entry.path === focusOn);
  const first = list.children[Math.max(0, back)]?.querySelector("button") ?? (here.is_root ? trail.querySelector("button") : pick);
  first?.focus();
  return true;
}

async function showMore() {
  const folder = here;
  try {
    const page = await ask(folder.path, folder.next);
    if (folder !== here) return;
    here.next = page.next;
    const fresh = page.entries.map(entryElement);
    list.append(...fresh);
    showState();
    fresh[0]?.querySelector("button")?.focus();
  } catch (error) {
    say("problem", error.message);
  }
}

function up() {
  if (here && here.trail.length > 1) open(here.trail.at(-2)[1], here.path);
}

function move(step) {
  const buttons = [...list.querySelectorAll("button")];
  const at = buttons.indexOf(document.activeElement);
  const next = at < 0 ? 0 : Math.min(buttons.length - 1, Math.max(0, at + step));
  buttons[next]?.focus();
}

//: A letter goes to the next folder that begins with it.
function seek(letter) {
  const buttons = [...list.querySelectorAll("button")];
  const at = buttons.indexOf(document.activeElement);
  const later = [...buttons.slice(at + 1), ...buttons.slice(0, at + 1)];
  later.find((button) => button.textContent.toLowerCase().startsWith(letter.toLowerCase()))?.focus();
}

const KEYS = {
  ArrowDown: () => move(1),
  ArrowUp: () => move(-1),
  Home: () => move(-Infinity),
  End: () => move(Infinity),
  Backspace: up,
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isLetter = event.key.length === 1 && event.key !== " ";
  if (!(event.key in KEYS) && !isLetter) return;
  event.preventDefault();
  // Keys of the page behind, such as / and ?, are letters here.
  event.stopPropagation();
  if (isLetter) seek(event.key);
  else KEYS[event.key]();
}

function take(path) {
  target.value = path;
  target.dispatchEvent(new Event("change", { bubbles: true }));
  dialog.close();
}

dialog.addEventListener("keydown", onKey);
more.addEventListener("click", showMore);
pick.addEventListener("click", () => take(here.path));
for (const button of dialog.querySelectorAll("[data-close]")) button.addEventListener("click", () => dialog.close());
dialog.addEventListener("close", () => target?.focus());

//: Opens where the field points to, else at the root.
async function browse(opener) {
  target = document.getElementById(opener.dataset.browse);
  address = opener.form.getAttribute("data-folders"); // a field named "dataset" hides the form's own
  suffix = opener.dataset.files ?? "";
  dialog.querySelector("h2").textContent = `Choose the ${opener.dataset.what}`;
  dialog.showModal();
  if (!target.value || !(await open(target.value))) await open("");
}

for (const opener of document.querySelectorAll("[data-browse]")) opener.addEventListener("click", () => browse(opener));
