// Drafts: what a person has entered into forms that post, kept in this tab until the server accepts it. A reload, a log-in
// that ran out, a refused or failed request lose nothing: the page that has the form shows the entries again.
//
// A form that is accepted is answered by a redirect, to a page without an error notice. Any other answer leaves the draft.
// Passwords and files are never kept. Hidden fields are kept with the rest: they say what the entries were based on. The
// value with which a field was opened (`before-NAME`) is kept with that field alone: the others show their present values.

import { element } from "./dom.js";

const STORE = "tidepool-drafts";
//: Characters that all drafts of a tab may have; the oldest ones make room. Browsers allow 5 million.
const MOST = 2_000_000;
const NEVER_KEPT = new Set(["password", "file", "submit", "button", "reset", "image"]);
const TOKEN = "csrfmiddlewaretoken";
const OPENED_WITH = "before-";

const user = document.body.dataset.user;
//: Address and place of a form -> { values: { name: texts }, isSent }, the newest last.
const drafts = new Map(storedDrafts());
let isRestoring = false;

function storedDrafts() {
  const stored = JSON.parse(sessionStorage.getItem(STORE) ?? "{}");
  // Without a user, the log-in is shown: the drafts wait for the user who comes back.
  return stored.user === user || !user ? (stored.drafts ?? []) : [];
}

function store() {
  const owner = user || JSON.parse(sessionStorage.getItem(STORE) ?? "{}").user;
  let text = JSON.stringify({ user: owner, drafts: [...drafts] });
  while (text.length > MOST && drafts.size) {
    drafts.delete(drafts.keys().next().value);
    text = JSON.stringify({ user: owner, drafts: [...drafts] });
  }
  sessionStorage.setItem(STORE, text);
}

//: Attributes and not properties: a field may be named like one of those.
function addressOf(form) {
  const { pathname, search } = new URL(form.getAttribute("action") ?? "", location.href);
  return pathname + search;
}

function isPosted(form) {
  return form.getAttribute("method")?.toLowerCase() === "post" && !("keepsNoDraft" in form.dataset);
}

function keyOf(form) {
  const address = addressOf(form);
  const same = [...document.forms].filter((other) => isPosted(other) && addressOf(other) === address);
  return `${address} ${same.indexOf(form)}`;
}

function fieldsOf(form) {
  return [...form.elements].filter(({ name, type }) => name && name !== TOKEN && !NEVER_KEPT.has(type));
}

function textsOf(fields) {
  return fields.flatMap((field) => {
    if (field.type === "checkbox" || field.type === "radio") return field.checked ? [field.value] : [];
    return field.options ? [...field.selectedOptions].map(({ value }) => value) : [field.value];
  });
}

function isKept({ name, type }, touched) {
  if (name.startsWith(OPENED_WITH)) return touched.has(name.slice(OPENED_WITH.length));
  return touched.has(name) || type === "hidden";
}

//: Values in the order of the fields, so that a field comes before those that depend on it.
function valuesOf(form, touched) {
  const values = {};
  for (const field of fieldsOf(form)) {
    if (isKept(field, touched) && !(field.name in values)) values[field.name] = textsOf(fieldsOf(form).filter(({ name }) => name === field.name));
  }
  return values;
}

function onEntry({ target }) {
  const { form, name, type } = target;
  if (!user || isRestoring || !form || !name || NEVER_KEPT.has(type) || !isPosted(form)) return;
  const key = keyOf(form);
  const touched = new Set([...Object.keys(drafts.get(key)?.values ?? {}), name]);
  drafts.delete(key); // the newest comes last
  drafts.set(key, { values: valuesOf(form, touched), isSent: false });
  store();
}

function onSubmit(event) {
  if (event.defaultPrevented) return;
  if (event.target.matches("[data-ends-log-in]")) drafts.clear();
  const draft = isPosted(event.target) && drafts.get(keyOf(event.target));
  if (draft) draft.isSent = true;
  store();
}

//: Forgets the drafts that the answer which shows this page has accepted.
function settle() {
  const isRedirected = performance.getEntriesByType("navigation")[0]?.redirectCount > 0;
  const isAccepted = user && isRedirected && !document.querySelector("[data-notice][role=alert]");
  for (const [key, draft] of drafts) {
    if (draft.isSent && isAccepted) drafts.delete(key);
    draft.isSent = false;
  }
  store();
}

//: Sets a field to one of the texts that its name has. True if that changed the field.
function fill(field, texts, place) {
  if (field.type === "checkbox" || field.type === "radio") {
    const isChosen = texts.includes(field.value);
    if (field.checked === isChosen) return false;
    field.checked = isChosen;
    return true;
  }
  const before = textsOf([field]).join("\n");
  if (field.options) for (const option of field.options) option.selected = texts.includes(option.value);
  else field.value = texts[place] ?? field.value;
  return textsOf([field]).join("\n") !== before;
}

//: True if the form shows anything else than before.
function restore(form, { values }) {
  let isChanged = false;
  for (const [name, texts] of Object.entries(values)) {
    const fields = fieldsOf(form).filter((field) => field.name === name);
    for (const [place, field] of fields.entries()) {
      if (!fill(field, texts, place)) continue;
      isChanged ||= field.type !== "hidden";
      for (const kind of ["input", "change"]) field.dispatchEvent(new Event(kind, { bubbles: true }));
      for (let around = field.closest("details"); around; around = around.parentElement.closest("details")) around.open = true;
    }
  }
  return isChanged;
}

//: A form with a conflict shows the entries already, and newer values beside them.
function renew(form) {
  const key = keyOf(form);
  drafts.set(key, { values: valuesOf(form, new Set(Object.keys(drafts.get(key).values))), isSent: false });
  store();
}

//: For scripts that send a form themselves, once the server has accepted the entries.
export function forgetDraft(form) {
  drafts.delete(keyOf(form));
  store();
}

function discard(keys) {
  for (const key of keys) drafts.delete(key);
  store();
  location.assign(location.pathname + location.search);
}

function showNotice(keys) {
  const button = element("button", { type: "button", className: "btn btn-sm", click: () => discard(keys) }, "Discard entries");
  const words = "What you entered here and did not save is shown again. ";
  document.getElementById("main").prepend(element("div", { className: "alert draft-notice", role: "status" }, words, button));
}

//: Notice on the log-in page: a form that was sent after the log-in had ended leads there.
function promise() {
  const words = "You are logged out. What you entered and did not save is kept, and shown again once you log in.";
  document.querySelector("[data-login] h1")?.after(element("div", { className: "alert", role: "status" }, words));
}

//: Once the page's own module has made its fields.
function begin() {
  settle();
  if (!user) {
    if (drafts.size) promise();
    return;
  }
  isRestoring = true;
  const posted = [...document.forms].filter(isPosted);
  for (const form of posted) if (drafts.has(keyOf(form)) && form.querySelector("[data-clashes]")) renew(form);
  const restored = posted.map((form) => [keyOf(form), form]).filter(([key, form]) => drafts.has(key) && restore(form, drafts.get(key)));
  isRestoring = false;
  if (restored.length) showNotice(restored.map(([key]) => key));
}

for (const kind of ["input", "change"]) document.addEventListener(kind, onEntry);
addEventListener("submit", onSubmit);
if (document.readyState === "complete") begin();
else document.addEventListener("DOMContentLoaded", begin);
