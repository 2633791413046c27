// Keys in the list of jobs, as mail readers have them. The page declares them as elements with `data-key`; keys.js says
// which was pressed.

let current = null;

function rows() {
  return [...document.querySelectorAll("#jobs tr[data-job]")];
}

//: Shows where one is; rows may have been replaced since.
export function showCurrent() {
  for (const row of rows()) row.classList.toggle("is-current", row.dataset.job === current);
}

function move(by) {
  const all = rows();
  const at = all.findIndex((row) => row.dataset.job === current);
  const row = all[Math.min(all.length - 1, Math.max(0, at + (at < 0 && by < 0 ? 0 : by)))];
  if (!row) return;
  current = row.dataset.job;
  showCurrent();
  row.querySelector("a").focus({ preventScroll: true });
  row.scrollIntoView({ block: "nearest" });
}

const ACTIONS = {
  j: () => move(1),
  k: () => move(-1),
  x: () =>
    rows()
      .find((row) => row.dataset.job === current)
      ?.querySelector("input[type=checkbox]")
      ?.click(),
};

document.addEventListener("tidepool:key", ({ detail }) => ACTIONS[detail.key]?.());
