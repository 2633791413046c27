// Colours of lines: those of the jobs, as far as they can be seen on the page's ground.

//: What WCAG asks of graphics.
const LEAST_CONTRAST = 3;
const MIX = 0.1;

function parts(colour) {
  return [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16));
}

function luminance(colour) {
  const [red, green, blue] = parts(colour).map((part) => (part <= 10 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

export function contrast(one, other) {
  const [dark, light] = [luminance(one), luminance(other)].sort((first, second) => first - second);
  return (light + 0.05) / (dark + 0.05);
}

function mixed(colour, other) {
  const others = parts(other);
  return `#${parts(colour)
    .map((part, place) =>
      Math.round(part + (others[place] - part) * MIX)
        .toString(16)
        .padStart(2, "0"),
    )
    .join("")}`;
}

//: The same hue, lighter or darker until it stands out from the ground. All as `#rrggbb`.
export function seenOn(ground, colour) {
  const away = luminance(ground) < 0.18 ? "#ffffff" : "#000000";
  let seen = colour;
  while (contrast(seen, ground) < LEAST_CONTRAST) seen = mixed(seen, away);
  return seen;
}
