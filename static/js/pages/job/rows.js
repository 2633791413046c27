// Elements that scripts of a job's page make: everything is text, never markup.

//: `refreshTimes` fills in the words.
export function timeElement(at) {
  const time = document.createElement("time");
  time.dateTime = at;
  time.dataset.relative = "";
  return time;
}

export function link(href, words) {
  const anchor = document.createElement("a");
  anchor.href = href;
  anchor.textContent = words;
  return anchor;
}

export function element(name, className = "", text = "") {
  const fresh = document.createElement(name);
  if (className) fresh.className = className;
  if (text) fresh.textContent = text;
  return fresh;
}

//: Whether the part of the page with this id can be seen.
export function isShown(id) {
  return !document.hidden && document.getElementById(id).classList.contains("active");
}
