// Ctrl-K: go to a page, a job, a dataset, a model, a report or a document by its name, or do what the page can do. A combobox with a list
// (https://www.w3.org/WAI/ARIA/apg/patterns/combobox/): the focus stays in the field, arrows move the chosen option.

import { element } from "./dom.js";

const PAUSE_MS = 150;
const dialog = document.getElementById("palette");
const field = document.getElementById("palette-field");
const list = document.getElementById("palette-list");
const told = document.getElementById("palette-told");

//: Order of the groups: matches by name come before the page's own actions.
const GROUP_ORDER = ["On this page", "Go to", "Do"];
const GROUPS = { job: "Trainings", study: "Studies", dataset: "Datasets", model: "Models", report: "Reports", help: "Help" };

let options = [];
let chosen = -1;
let timer = null;
let request = null;

function pages() {
  return [...document.querySelectorAll(".rail-nav a")].map((link) => ({ group: "Go to", name: link.textContent.trim(), address: link.href }));
}

//: Elements say by data-command what they do in words that stand alone: "Stop this training".
function commands() {
  const usable = [...document.querySelectorAll("[data-command]")].filter((element) => !element.closest("[hidden], :disabled, [aria-disabled=true]"));
  return usable.map((element) => ({ group: element.closest("main") ? "On this page" : "Do", name: element.dataset.command, element }));
}

//: Options in the order of their groups. A group that has what was typed at the beginning of a name comes first.
function sorted(options, text) {
  const begins = (option) => Number(option.name.toLowerCase().startsWith(text.toLowerCase()));
  const groups = GROUP_ORDER.map((name) => options.filter((option) => option.group === name && fits(option, text)));
  const closest = groups.filter((members) => members.length).map((members) => members.sort((one, other) => begins(other) - begins(one)));
  return closest.sort(([one], [other]) => begins(other) - begins(one)).flat();
}

//: Each word must occur, in any order.
function fits(option, text) {
  const name = option.name.toLowerCase();
  return text
    .toLowerCase()
    .split(/\s+/)
    .every((word) => name.includes(word));
}

function optionElement(option, number) {
  const run = (event) => carryOut(option, event.ctrlKey || event.metaKey);
  const values = { id: `palette-option-${number}`, role: "option", "aria-selected": "false", click: run, pointermove: () => choose(number) };
  return element("div", values, element("bdi", {}, option.name), ...(option.note ? [element("small", {}, option.note)] : []));
}

function groupElement(name, members) {
  const title = element("div", { className: "palette-group", role: "presentation" }, name);
  return element("div", { role: "group", "aria-label": name }, title, ...members);
}

function show(found) {
  options = found;
  const groups = Map.groupBy(options.map(optionElement), (_, number) => options[number].group);
  list.replaceChildren(...[...groups].map(([name, members]) => groupElement(name, members)));
  dialog.querySelector(".palette-none").hidden = options.length > 0;
  told.textContent = options.length === 1 ? "1 result" : `${options.length} results`;
  choose(options.length ? 0 : -1);
}

function choose(number) {
  document.getElementById(`palette-option-${chosen}`)?.setAttribute("aria-selected", "false");
  chosen = number;
  const option = document.getElementById(`palette-option-${chosen}`);
  option?.setAttribute("aria-selected", "true");
  option?.scrollIntoView({ block: "nearest" });
  if (option) field.setAttribute("aria-activedescendant", option.id);
  else field.removeAttribute("aria-activedescendant");
}

function carryOut(option, inNewTab) {
  dialog.close();
  if (option.element) option.element.click();
  else if (inNewTab) open(option.address, "_blank", "noopener");
  else location.assign(option.address);
}

async function find(text) {
  request?.abort();
  request = new AbortController();
  const response = await fetch(`/api/v1/search/?q=${encodeURIComponent(text)}`, { headers: { Accept: "application/json" }, signal: request.signal });
  if (!response.ok) throw new Error(`The search answered ${response.status}`);
  const { results } = await response.json();
  return results.map(({ kind, name, note, address }) => ({ group: GROUPS[kind], name, note, address }));
}

async function search() {
  const text = field.value.trim();
  const own = sorted([...commands(), ...pages()], text);
  if (!text) {
    show(own);
    return;
  }
  dialog.setAttribute("aria-busy", "true");
  try {
    const named = await find(text);
    const help = named.filter(({ group }) => group === GROUPS.help);
    if (text === field.value.trim()) show([...named.filter((each) => !help.includes(each)), ...own, ...help]);
  } catch (error) {
    if (error.name === "AbortError") return;
    show(own);
    told.textContent = "The server did not answer the search. Only pages and actions are shown.";
  }
  dialog.removeAttribute("aria-busy");
}

const KEYS = {
  ArrowDown: () => choose((chosen + 1) % options.length),
  ArrowUp: () => choose((chosen - 1 + options.length) % options.length),
  Home: () => choose(0),
  End: () => choose(options.length - 1),
};

function onKey(event) {
  if (event.isComposing) return;
  if (event.key === "Enter") {
    event.preventDefault();
    if (options[chosen]) carryOut(options[chosen], event.ctrlKey || event.metaKey);
  } else if (KEYS[event.key] && options.length) {
    event.preventDefault();
    KEYS[event.key]();
  }
}

export function showPalette() {
  if (dialog.open || document.querySelector("dialog[open]")) return;
  field.value = "";
  search();
  dialog.showModal();
  field.focus();
}

field?.addEventListener("keydown", onKey);
field?.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(search, PAUSE_MS);
});
dialog?.addEventListener("click", (event) => event.target === dialog && dialog.close());
