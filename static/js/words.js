// Numbers and moments in words.

const UNITS = [
  ["day", 86_400],
  ["h", 3_600],
  ["min", 60],
  ["s", 1],
];

//: The same rule as `relative` in core/time.py, which renders it first.
export function relativeTime(moment, now = new Date()) {
  const seconds = Math.round((now - moment) / 1000);
  if (!Number.isFinite(seconds)) return "";
  if (Math.abs(seconds) < 2) return "now";
  for (const [unit, size] of UNITS) {
    if (Math.abs(seconds) >= size) {
      const count = Math.floor(Math.abs(seconds) / size);
      const words = `${count} ${unit}${unit === "day" && count > 1 ? "s" : ""}`;
      return seconds > 0 ? `${words} ago` : `in ${words}`;
    }
  }
  return "now";
}

//: Made once: a page has many moments, and and to make a formatter takes far longer than to use it.
const EXACT = new Intl.DateTimeFormat([], { dateStyle: "medium", timeStyle: "long" });

//: Time in the viewer's zone, which the text names: "21 Nov 2026, 14:05:09 CET".
export function exactTime(moment) {
  return EXACT.format(moment);
}

export function duration(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

export function percent(part, digits = 0) {
  return part === null || part === undefined ? "–" : `${(part * 100).toFixed(digits)} %`;
}

//: 1.5 MB: in powers of ten, as disks are sold.
export function bytes(count) {
  const power = Math.min(4, Math.floor(Math.log10(Math.max(1, count)) / 3));
  return `${Number((count / 1000 ** power).toPrecision(3))} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}

export function clock(moment) {
  return moment.toLocaleTimeString([], { hour12: false });
}

export function isOver(state) {
  return ["SUCCEEDED", "FAILED", "CANCELLED"].includes(state);
}

export function inWords(state) {
  return state.charAt(0) + state.slice(1).toLowerCase();
}

export function pauseInWords(milliseconds) {
  return milliseconds === null || milliseconds === undefined ? "" : `training paused for ${Math.round(milliseconds)} ms`;
}

//: Lines of about this many characters.
export function wrapped(text, width = 60) {
  const lines = [""];
  for (const word of text.split(" ")) {
    if (lines.at(-1).length + word.length > width) lines.push("");
    lines[lines.length - 1] += (lines.at(-1) ? " " : "") + word;
  }
  return lines;
}
