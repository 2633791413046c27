// A person's choices about curves: axis, scale, smoothing, and what dragging does. The browser remembers them.

import { press } from "./dom.js";
import { spansDecades } from "./lines.js";

const KEY = "tidepool-curves";
const DEFAULTS = { axis: "step", scale: "auto", smoothing: 0 };

//: `changed(name)` is called for "axis", "scale", "smoothing" and "drag", `whole()` when all shall be seen again.
export class Choices {
  constructor(panel, { changed, whole }) {
    this.panel = panel;
    this.drag = "zoom";
    Object.assign(this, DEFAULTS, remembered());
    for (const name of ["axis", "scale", "drag"]) this.offer(name, changed);
    this.slider = panel.querySelector("[data-smoothing]");
    this.slider.value = this.smoothing;
    this.slider.addEventListener("input", () => {
      this.smoothing = Number(this.slider.value);
      this.keep();
      this.sayHowSmooth();
      changed("smoothing");
    });
    this.sayHowSmooth();
    this.reset = panel.querySelector("[data-whole]");
    this.reset.addEventListener("click", whole);
  }

  offer(name, changed) {
    const buttons = this.panel.querySelectorAll(`[data-${name}]`);
    press(buttons, name, this[name]);
    for (const button of buttons) {
      button.addEventListener("click", () => {
        this[name] = button.dataset[name];
        press(buttons, name, this[name]);
        this.keep();
        changed(name);
      });
    }
  }

  keep() {
    localStorage.setItem(KEY, JSON.stringify({ axis: this.axis, scale: this.scale, smoothing: this.smoothing }));
  }

  sayHowSmooth() {
    this.panel.querySelector("[data-smoothing-value]").textContent = this.smoothing ? this.smoothing.toFixed(2) : "off";
  }

  //: Hides the axes that this training has no values for; steps always remain. Returns the chosen axis.
  axisOf(possible) {
    for (const button of this.panel.querySelectorAll("[data-axis]")) button.hidden = !possible.has(button.dataset.axis);
    const axis = possible.has(this.axis) ? this.axis : DEFAULTS.axis;
    press(this.panel.querySelectorAll("[data-axis]"), "axis", axis);
    return axis;
  }

  //: Until somebody says which, the data do; both buttons say which it is.
  isLog(values) {
    return this.scale === "auto" ? spansDecades(values) : this.scale === "log";
  }

  showScale(isLog) {
    press(this.panel.querySelectorAll("[data-scale]"), "scale", isLog ? "log" : "linear");
  }

  showWhole(isZoomed) {
    this.reset.disabled = !isZoomed;
  }
}

function remembered() {
  const kept = localStorage.getItem(KEY);
  return kept ? JSON.parse(kept) : {};
}
