// Parallel coordinates beside a table: a line and its row find each other.

//: `lines()` answers with the group of lines, `rows` holds rows whose attribute `data-<name>` is the line's key.
export function pointAtEachOther(area, lines, rows, name) {
  const point = (key) => {
    const found = [`[data-line="${CSS.escape(key ?? "")}"]`, `[data-${name}="${CSS.escape(key ?? "")}"]`];
    for (const [place, part] of [lines(), rows].entries()) {
      for (const one of part?.querySelectorAll(".is-current") ?? []) one.classList.remove("is-current");
      if (key) part?.querySelector(found[place])?.classList.add("is-current");
    }
    lines()?.classList.toggle("has-current", Boolean(key));
  };
  area?.addEventListener("pointerover", (event) => point(event.target.closest("[data-line]")?.dataset.line));
  rows?.addEventListener("pointerover", (event) => point(event.target.closest(`[data-${name}]`)?.dataset[name]));
  for (const part of [area, rows]) part?.addEventListener("pointerleave", () => point());
  rows?.addEventListener("focusin", (event) => point(event.target.closest(`[data-${name}]`)?.dataset[name]));
}
