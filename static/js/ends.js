// Names at the ends of lines, where two to four of them share a row that has room; the legend has all names.

const LEAST_LINES = 2;
const MOST_LINES = 4;
//: Of one name.
const HEIGHT_PX = 14;
const GAP_PX = 5;
//: Ends that are nearer to each other than this, from left to right, are spread from top to bottom.
const NEAR_PX = 24;

//: Of these numbers of lines, one for each row, whether some row may have names.
export function mayName(counts) {
  return counts.some((count) => count >= LEAST_LINES && count <= MOST_LINES);
}

//: `ends`: {axis, x, value, text, colour} of each line; without `x` its name stands beside the plot.
export function placeEnds(box, canvas, ends) {
  const names = [...groups(ends, ({ axis }) => axis).values()].flatMap((row) => placesOf(row, canvas._fullLayout));
  box.replaceChildren(
    ...names.map(({ left, top, text, colour }) => {
      const name = document.createElement("span");
      const dot = document.createElement("i");
      dot.style.background = colour;
      name.append(dot, text);
      name.style.left = `${left + canvas.offsetLeft}px`;
      name.style.top = `${top + canvas.offsetTop}px`;
      return name;
    }),
  );
  box.hidden = canvas.hidden;
}

function placesOf(row, { xaxis, ...layout }) {
  const yaxis = layout[row[0].axis.replace("y", "yaxis")];
  if (row.length < LEAST_LINES || row.length > MOST_LINES || yaxis._length < row.length * HEIGHT_PX) return [];
  const lefts = row.map(({ x }) => xaxis._offset + (x === undefined ? xaxis._length : xaxis.d2p(x)) + GAP_PX);
  const places = row.map(({ value, text, colour }, index) => ({ left: lefts[index], top: yaxis._offset + yaxis.d2p(value), text, colour }));
  const [least, most] = [yaxis._offset + HEIGHT_PX / 2, yaxis._offset + yaxis._length - HEIGHT_PX / 2];
  for (const near of groups(places, ({ left }) => Math.round(left / NEAR_PX)).values()) spread(near, least, most);
  return places;
}

//: Moves them apart, as little as it takes to read them.
function spread(places, least, most) {
  const order = [...places].sort((one, other) => one.top - other.top);
  let free = least;
  for (const place of order) {
    place.top = Math.max(place.top, free);
    free = place.top + HEIGHT_PX;
  }
  let limit = most;
  for (const place of order.reverse()) {
    place.top = Math.min(place.top, limit);
    limit = place.top - HEIGHT_PX;
  }
}

function groups(items, key) {
  const found = new Map();
  for (const item of items) found.set(key(item), [...(found.get(key(item)) ?? []), item]);
  return found;
}
