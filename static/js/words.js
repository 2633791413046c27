// Numbers and moments in words.

import { CONSTANTS } from "./constants.js";

//: The same rule as `relative` in core/time.py, which renders it first.
export function relativeTime(moment, now = new Date()) {
  const seconds = Math.round((now - moment) / 1000);
  if (!Number.isFinite(seconds)) return "";
  if (Math.abs(seconds) < 2) return "now";
  if (seconds < 0) return `in ${counted(...nearest(-seconds))}`;
  const [unit, size] = CONSTANTS.timeUnits.find(([, each]) => seconds >= each);
  return `${counted(Math.floor(seconds / size), unit)} ago`;
}

//: The rounded count and its unit: the smallest in which the time stays below one of the next larger unit.
function nearest(seconds) {
  const units = CONSTANTS.timeUnits.toReversed();
  const rounded = units.map(([unit, size]) => [Math.floor((2 * seconds + size) / (2 * size)), unit, size]);
  const [count, unit] = rounded.find(([each, , size], index) => index === units.length - 1 || each * size < units[index + 1][1]);
  return [count, unit];
}

function counted(count, unit) {
  return `${count} ${unit}${unit === "day" && count > 1 ? "s" : ""}`;
}

//: Time in the viewer's zone: "27 Nov 2026, 11:23". The same rule as `exact_time` in core/time.py.
export function exactTime(moment) {
  const [hours, minutes] = [moment.getHours(), moment.getMinutes()].map((part) => String(part).padStart(2, "0"));
  return `${moment.getDate()} ${CONSTANTS.months[moment.getMonth()]} ${moment.getFullYear()}, ${hours}:${minutes}`;
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

//: "12 B", "307.6 MiB": the same rule as `size_words` in tidepool/units.py.
export function sizeWords(count) {
  const units = CONSTANTS.sizeUnits;
  let tenths = 10 * Math.floor(count + 0.5);
  let unit = 0;
  for (let scale = 1024; unit < units.length - 1 && tenths >= 10 * 1024; scale *= 1024) {
    tenths = Math.floor((10 * count) / scale + 0.5);
    unit += 1;
  }
  return `${tenths / 10} ${units[unit]}`;
}

//: Time of day in the viewer's zone: "09:05:00".
export function clock(moment) {
  return [moment.getHours(), moment.getMinutes(), moment.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

export function isOver(state) {
  return CONSTANTS.finalStates.includes(state);
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
