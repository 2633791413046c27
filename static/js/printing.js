// Paper is white: a page is printed in the light theme, with its charts as wide as the paper.

const root = document.documentElement;
let before = "";

export function isPrinting() {
  return root.classList.contains("is-printing");
}

function show(theme, onPaper) {
  root.dataset.bsTheme = theme;
  root.classList.toggle("is-printing", onPaper);
  document.dispatchEvent(new CustomEvent("tidepool:theme"));
}

addEventListener("beforeprint", () => {
  before = root.dataset.bsTheme;
  show("light", true);
});
addEventListener("afterprint", () => show(before, false));
for (const button of document.querySelectorAll("[data-print]")) {
  button.hidden = false;
  button.addEventListener("click", () => print());
}
