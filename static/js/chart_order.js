// Charts that a person looks at, in their order: the server keeps both for the user and the models of the trainings.
// `take` tells the titles of the charts; a text, or a regular expression between slashes, narrows the charts for now.

import { element } from "./dom.js";
import { readJson } from "./figure.js";
import { say } from "./toasts.js";

export class ChartOrder {
  //: `changed` is called when other charts are to be seen, or in another order.
  constructor(changed) {
    const { jobs, order, hidden, group } = readJson("chosen-charts");
    Object.assign(this, { jobs, order, hidden: new Set(hidden), group, changed, titles: [], find: () => true, sent: Promise.resolve() });
    //: Is shown by the page instead of its charts.
    this.unchosen = element("p", { hidden: true }, "No chart is shown: choose some under Charts.");
    this.box = document.getElementById("chart-order");
    this.list = this.box.querySelector("[data-charts]");
    this.finder = this.box.querySelector("[data-find-charts]");
    this.finder.addEventListener("input", () => this.narrow());
    this.box.querySelector("[data-all-charts]").addEventListener("click", () => this.forget());
  }

  take(titles) {
    if (titles.join("\n") === this.titles.join("\n")) return;
    this.titles = titles;
    this.show();
  }

  //: Titles in the person's order; those that are new to it follow in the order of the page.
  sorted() {
    const known = this.order.filter((title) => this.titles.includes(title));
    return [...known, ...this.titles.filter((title) => !known.includes(title))];
  }

  isSeen(title) {
    return !this.hidden.has(title) && this.find(title);
  }

  narrow() {
    const text = this.finder.value.trim();
    let problem = "";
    try {
      const pattern = text.length > 2 && text.startsWith("/") && text.endsWith("/") && new RegExp(text.slice(1, -1), "i");
      this.find = pattern ? (title) => pattern.test(title) : (title) => title.toLowerCase().includes(text.toLowerCase());
    } catch (error) {
      problem = `The regular expression cannot be used (${error.message}): correct it.`;
    }
    this.box.querySelector("[data-find-problem]").textContent = problem;
    this.finder.toggleAttribute("aria-invalid", problem !== "");
    this.changed();
  }

  move(title, step) {
    const titles = this.sorted();
    const place = titles.indexOf(title);
    titles.splice(place, 1);
    titles.splice(place + step, 0, title);
    this.order = this.withOthers(titles);
    this.keep();
    this.list.querySelector(`[data-moves="${step}"][data-title="${CSS.escape(title)}"]`)?.focus();
  }

  //: Titles that other trainings of the model have, or the other page, keep their places.
  withOthers(titles) {
    const rest = titles.values();
    const places = [...new Set([...this.order, ...titles])];
    return places.map((title) => (titles.includes(title) ? rest.next().value : title));
  }

  toggle(title) {
    if (!this.hidden.delete(title)) this.hidden.add(title);
    this.keep();
  }

  forget() {
    this.order = [];
    this.hidden.clear();
    this.keep();
  }

  //: The grouping of the lines on Compare is kept with the charts.
  keepGroup(group) {
    this.group = group;
    this.keep();
  }

  keep() {
    this.sent = this.sent.then(() => this.send()).catch((error) => say(`The charts are not kept: ${error.message}`, { kind: "error" }));
    this.show();
    this.changed();
  }

  //: One after the other: the last choice counts. It is sent even if the person leaves the page meanwhile.
  async send() {
    const body = new URLSearchParams({ csrfmiddlewaretoken: document.querySelector("[name=csrfmiddlewaretoken]").value });
    for (const [name, values] of Object.entries({ job: this.jobs, order: this.order, hidden: this.hidden, group: [this.group] }))
      for (const value of values) body.append(name, value);
    const response = await fetch(this.box.dataset.address, { method: "POST", body, keepalive: true, headers: { Accept: "application/json" } });
    if (response.status === 401) document.dispatchEvent(new CustomEvent("tidepool:logged-out"));
    if (!response.ok) throw new Error((await response.json()).error);
  }

  show() {
    const titles = this.sorted();
    this.box.hidden = titles.length === 0;
    this.list.replaceChildren(...titles.map((title, place) => this.item(title, place, titles.length - 1)));
  }

  item(title, place, last) {
    const box = element("input", { type: "checkbox", className: "form-check-input", checked: !this.hidden.has(title), change: () => this.toggle(title) });
    const label = element("label", { className: "form-check" }, box, element("span", {}, title));
    return element("li", {}, label, this.mover(title, -1, "up", place === 0), this.mover(title, 1, "down", place === last));
  }

  mover(title, step, word, disabled) {
    const values = {
      type: "button",
      className: "btn btn-sm btn-icon",
      disabled,
      "aria-label": `Move ${title} ${word}`,
      "data-moves": String(step),
      "data-title": title,
    };
    return element("button", { ...values, click: () => this.move(title, step) }, step < 0 ? "↑" : "↓");
  }
}
