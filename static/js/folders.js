// Picks a folder of the server, by pointer or by keyboard. The server says what may be seen.

import { bytes } from "./words.js";

const dialog = document.getElementById("folders");
const list = dialog.querySelector(".folders-list");
const trail = dialog.querySelector(".folders-trail");
const more = dialog.querySelector("[data-more]");
const pick = dialog.querySelector("[data-pick]");
let address = "";
let target = null;
let here = null;
let asked = 0;

function say(name, words) {
  dialog.querySelector(`[data-field="${name}"]`).textContent = words;
}

function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `${document.body.dataset.icons}#${name}`);
  svg.append(use);
  return svg;
}

async function ask(path, after = "") {
  const query = new URLSearchParams({ path, after });
  const response = await fetch(`${address}&${query}`, { headers: { Accept: "application/json" } });
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.error ?? "The server does not answer: try again.");
  return answer;
}

function entryElement(entry) {
  const item = document.createElement("li");
  if (entry.is_folder) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(icon("folder"), entry.name);
    button.addEventListener("click", () => open(entry.path));
    item.append(button);
  } else {
    const line = document.createElement("span");
    line.className = "file";
    line.append(entry.name, ` ${bytes(entry.size_bytes)}`);
    item.append(line);
  }
  return item;
}

function showTrail() {
  trail.replaceChildren(
    ...here.trail.map(([name, path], index) => {
      const item = document.createElement("li");
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = name;
      if (index === here.trail.length - 1) button.setAttribute("aria-current", "true");
      button.addEventListener("click", () => open(path));
      item.append(button);
      return item;
    }),
  );
}

function showState() {
  const count = list.children.length;
  say("words", count ? `${count}${here.next ? " and more" : ""} in it.` : "It is empty.");
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

function take() {
  target.value = here.path;
  target.dispatchEvent(new Event("change", { bubbles: true }));
  dialog.close();
}

dialog.addEventListener("keydown", onKey);
more.addEventListener("click", showMore);
pick.addEventListener("click", take);
for (const button of dialog.querySelectorAll("[data-close]")) button.addEventListener("click", () => dialog.close());
dialog.addEventListener("close", () => target?.focus());

//: Opens where the field points to, else at the root; `what` is "training folder".
export async function browseInto(field, what, folders) {
  target = field;
  address = folders;
  dialog.querySelector("h2").textContent = `Pick the ${what}`;
  dialog.showModal();
  if (!field.value || !(await open(field.value))) await open("");
}
