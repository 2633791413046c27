// Panels that open from a button in the top bar: menus, and the rail where the page is narrow. They are native
// popovers: the browser opens them, closes them on Escape and on a press elsewhere, and gives the focus back.

import { placeAfter } from "./dom.js";

const GAP_PX = 1;
const rail = document.getElementById("rail");
const wide = matchMedia("(min-width: 1200px)");

function startMenu(menu) {
  const button = document.querySelector(`[popovertarget="${menu.id}"]`);
  const items = [...menu.querySelectorAll(".menu-item")];

  function onKey(event) {
    const next = items[placeAfter(event.key, items.indexOf(document.activeElement), items.length)];
    if (!next) return;
    event.preventDefault();
    if (!menu.matches(":popover-open")) menu.showPopover();
    next.focus();
  }

  menu.addEventListener("beforetoggle", () => {
    const box = button.getBoundingClientRect();
    menu.style.top = `${box.bottom + GAP_PX}px`;
    menu.style.right = `${document.documentElement.clientWidth - box.right}px`;
  });
  // Before what is pressed does its work: a dialog that it opens gives the focus back to the button.
  menu.addEventListener("click", () => menu.hidePopover(), { capture: true });
  menu.addEventListener("keydown", onKey);
  button.addEventListener("keydown", (event) => ["ArrowDown", "ArrowUp"].includes(event.key) && onKey(event));
}

//: The open drawer is a dialog: the page behind it waits.
function setModal(isModal) {
  for (const part of document.querySelectorAll(".skip-link, .frame-body")) part.inert = isModal;
  rail.role = isModal ? "dialog" : null;
  rail.ariaModal = isModal ? "true" : null;
}

for (const menu of document.querySelectorAll(".menu[popover]")) startMenu(menu);

// The page must be there again before the focus goes back to it.
rail?.addEventListener("beforetoggle", ({ newState }) => newState === "closed" && setModal(false));
rail?.addEventListener("toggle", ({ newState }) => {
  if (newState === "closed") return;
  setModal(true);
  rail.focus();
});
wide.addEventListener("change", () => rail?.hidePopover());
