// Utilizations of the GPUs that a part of a page shows, as they change, between two renderings by the server.

import { live } from "./live.js";

//: Rows of readings are written every ten seconds: as often, the server renders anew what hangs on them.
export const READINGS_MS = 10_000;
const PREFIX = "readings.";

//: `host:index`; a host's name has no colon.
function hostOf(key) {
  return key.slice(0, key.lastIndexOf(":"));
}

//: A tile with a ring and a note, or a cell of a table.
function show(shown, percent) {
  const known = percent !== null;
  if (shown.dataset.reading) {
    shown.textContent = known ? `${Math.round(percent)} %` : "–";
    return;
  }
  const ring = shown.querySelector(".slot-ring circle:last-child");
  if (!known || !ring) return;
  ring.setAttribute("stroke-dasharray", `${Math.round(percent)} 100`);
  const note = shown.querySelector(".slot-note");
  if (note.textContent.endsWith("% busy")) note.textContent = `${Math.round(percent)} % busy`;
}

export function followReadings(part) {
  const followed = new Set();
  const cells = (key) => part.querySelectorAll(`[data-reading="${CSS.escape(key)}"], .slot[data-slot="${CSS.escape(key)}"]`);
  const take = (host, news) => {
    for (const [index, percent] of Object.entries(news)) for (const shown of cells(`${host}:${index}`)) show(shown, percent);
  };
  const follow = () => {
    const keys = [...part.querySelectorAll("[data-reading], .slot[data-slot]")].map(({ dataset }) => dataset.reading ?? dataset.slot);
    const hosts = new Set(keys.map(hostOf));
    for (const host of [...followed].filter((host) => !hosts.has(host))) {
      followed.delete(host);
      live.unwatch(PREFIX + host);
    }
    for (const host of [...hosts].filter((host) => !followed.has(host))) {
      followed.add(host);
      const read = async () => ({ seq: 0, state: {} }); // without a websocket, what the server renders has to do
      live.watch({ name: PREFIX + host, seq: 0, read, onState: (_, news) => take(host, news) });
    }
  };
  part.addEventListener("htmx:afterSwap", follow);
  follow();
}
