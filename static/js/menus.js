// Panels that open from a button in the top bar: menus, and the rail where the page is narrow. They are native
// popovers: the browser opens them, closes them on Escape and on a press elsewhere, and gives the focus back.

import { placeAfter } from "./dom.js";

const GAP_PX = 1;
const rail = document.getElementById("rail");
const wide = matchMedia("(min-width: 1200px)");

const buttonOf = (menu) => document.querySelector(`[popovertarget="${menu.id}"]`);

function place(menu) {
  const box = buttonOf(menu).getBoundingClientRect();
  // Below its button, or above it where the window ends.
  const isLow = box.bottom > window.innerHeight / 2 && buttonOf(menu).closest("main");
  menu.style.top = isLow ? "auto" : `${box.bottom + GAP_PX}px`;
  menu.style.bottom = isLow ? `${window.innerHeight - box.top + GAP_PX}px` : "auto";
  menu.style.right = `${document.documentElement.clientWidth - box.right}px`;
}

function moveIn(menu, event) {
  const items = [...menu.querySelectorAll(".menu-item")];
  const next = items[placeAfter(event.key, items.indexOf(document.activeElement), items.length)];
  if (!next) return;
  event.preventDefault();
  if (!menu.matches(":popover-open")) menu.showPopover();
  next.focus();
}

//: The open drawer is a dialog: the page behind it waits.
function setModal(isModal) {
  for (const part of document.querySelectorAll(".skip-link, .frame-body")) part.inert = isModal;
  rail.role = isModal ? "dialog" : null;
  rail.ariaModal = isModal ? "true" : null;
}

// For menus of rows that come later, too; this event does not bubble.
document.addEventListener("beforetoggle", ({ target, newState }) => newState === "open" && target.matches(".menu") && place(target), { capture: true });
// Before what is pressed does its work: a dialog that it opens gives the focus back to the button.
document.addEventListener("click", ({ target }) => target.closest(".menu[popover]")?.hidePopover(), { capture: true });
document.addEventListener("keydown", (event) => {
  const menu = event.target.closest(".menu[popover]");
  if (menu) moveIn(menu, event);
  else if (["ArrowDown", "ArrowUp"].includes(event.key)) {
    const opened = document.getElementById(event.target.getAttribute?.("popovertarget"));
    if (opened?.matches(".menu")) moveIn(opened, event);
  }
});

// The page must be there again before the focus goes back to it.
rail?.addEventListener("beforetoggle", ({ newState }) => newState === "closed" && setModal(false));
rail?.addEventListener("toggle", ({ newState }) => {
  if (newState === "closed") return;
  setModal(true);
  rail.focus();
});
wide.addEventListener("change", () => rail?.hidePopover());
