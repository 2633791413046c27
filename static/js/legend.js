// The names of a figure's lines as buttons beside it, never over it: each takes its line away and brings it back.

import { element } from "./dom.js";

//: `names`: {key, text, colour, look} of each line, look one of "line", "dot", "fill"; `hidden`: keys of those taken away.
export function showLegend(box, names, hidden, toggle) {
  const known = new Map([...box.children].map((button) => [button.dataset.line, button]));
  const buttons = names.map((name) => {
    const button = known.get(name.key) ?? nameButton(name.key, toggle);
    button.lastChild.textContent = name.text;
    button.firstChild.dataset.look = name.look;
    button.firstChild.style.color = name.colour;
    button.setAttribute("aria-pressed", String(!hidden.has(name.key)));
    return button;
  });
  // Remaining buttons are not taken out and put back: one of them may have the focus.
  for (const button of [...box.children]) if (!buttons.includes(button)) button.remove();
  buttons.forEach((button, place) => {
    if (box.children[place] !== button) box.insertBefore(button, box.children[place] ?? null);
  });
}

function nameButton(key, toggle) {
  const button = element("button", { type: "button", title: "Hide or show the line", click: () => toggle(key) }, element("i"), element("span"));
  button.dataset.line = key;
  return button;
}

//: Name and look of a trace in the legend.
export function nameOf(trace) {
  const isBand = trace.fillcolor !== undefined && trace.stackgroup !== undefined;
  const look = isBand ? "fill" : trace.line?.dash && trace.line.dash !== "solid" ? "dot" : "line";
  return { key: keyOf(trace), text: plain(trace.name), colour: isBand ? trace.fillcolor : trace.line?.color, look };
}

export function keyOf({ meta, name }) {
  return String(meta?.job ?? meta?.metric ?? meta?.label ?? meta?.kind ?? name);
}

//: Undoes `asText` of figure.js.
function plain(name) {
  return name.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
}
