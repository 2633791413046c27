// Chooses users from the site's accounts: <textarea data-accounts> holds one name per line, and is filled in by a list and a
// menu of the accounts that are not in it. The page carries the names as `accounts`.

import { element } from "./dom.js";
import { readJson } from "./figure.js";

class Picker {
  constructor(field, accounts) {
    Object.assign(this, { field, accounts });
    const label = document.querySelector(`label[for="${field.id}"]`).firstChild.textContent.trim();
    this.list = element("ul", { className: "accounts", "aria-label": label });
    this.menu = element("select", { className: "form-select", "aria-label": `Add to: ${label}`, disabled: field.disabled, change: () => this.add() });
    field.before(this.list, this.menu);
    field.classList.add("visually-hidden");
    field.tabIndex = -1;
    field.addEventListener("focus", () => this.menu.focus()); // a click on the label
    field.addEventListener("change", () => this.show()); // a draft was put back
    this.show();
  }

  get names() {
    return this.field.value.split("\n").filter(Boolean);
  }

  set names(names) {
    this.field.value = names.join("\n");
    for (const kind of ["input", "change"]) this.field.dispatchEvent(new Event(kind, { bubbles: true }));
  }

  add() {
    if (this.menu.value) this.names = [...this.names, this.menu.value];
  }

  remove(name) {
    this.names = this.names.filter((other) => other !== name);
    this.menu.focus();
  }

  show() {
    const names = this.names;
    this.list.replaceChildren(...names.map((name) => this.item(name)));
    this.list.hidden = !names.length;
    const others = this.accounts.filter((name) => !names.includes(name));
    this.menu.replaceChildren(new Option(others.length ? "Choose a user to add" : "All users are in the list", ""), ...others.map((name) => new Option(name)));
  }

  item(name) {
    const button = element("button", { type: "button", className: "btn-close", "aria-label": `Remove ${name}`, click: () => this.remove(name) });
    return element("li", { className: "tag" }, element("span", { dir: "auto", title: name }, name), ...(this.field.disabled ? [] : [button]));
  }
}

export function startPickers() {
  const accounts = readJson("accounts");
  for (const field of document.querySelectorAll("textarea[data-accounts]")) new Picker(field, accounts);
}
