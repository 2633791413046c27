// A document: its contents open where there is room beside it, and what scrolls sideways can be reached by the keyboard.

const BESIDE = matchMedia("(min-width: 1080.02px)");

function openContents() {
  for (const part of document.querySelectorAll(".help-aside details")) part.open = BESIDE.matches;
}

//: A focused element scrolls with the arrow keys. Those that show everything are no stops of the Tab key.
const widths = new ResizeObserver((changes) => {
  for (const { target } of changes) {
    if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});
for (const element of document.querySelectorAll(".help-document :is(pre, table)")) widths.observe(element);

openContents();
BESIDE.addEventListener("change", openContents);
document.documentElement.dataset.ready = "yes";
