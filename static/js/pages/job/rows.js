// Rows of tables: everything is text, never markup.

export function cell(row, label, value, className = "") {
  const fresh = row.insertCell();
  fresh.dataset.label = label;
  if (className) fresh.className = className;
  if (value instanceof Node) fresh.append(value);
  else fresh.textContent = value ?? "–";
  return fresh;
}

//: `refreshTimes` fills in the words.
export function timeElement(at) {
  const time = document.createElement("time");
  time.dateTime = at;
  time.dataset.relative = "";
  return time;
}

export function link(href, words, isDownload = false) {
  const anchor = document.createElement("a");
  anchor.href = href;
  anchor.textContent = words;
  anchor.toggleAttribute("download", isDownload);
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
