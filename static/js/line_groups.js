// Lines of several trainings as one: their mean, and the band from the least to the most.

//: Points of a group, from left to right: {x, mean, least, most, count}. `lines`: for each training its points {x, value},
//: whose value holds until the next one if `isStepped`, and else goes evenly to it. A training counts from its first point
//: to its last; where no training has a value, the mean is null.
export function spanOf(lines, isStepped) {
  const walks = lines.filter((points) => points.length > 0).map((points) => walkAlong(points, isStepped));
  const places = [...new Set(lines.flat().map(({ x }) => x))].sort((one, other) => one - other);
  return places.map((x) => ({ x, ...summary(walks.map((valueAt) => valueAt(x)).filter((value) => value !== null)) }));
}

function summary(values) {
  if (values.length === 0) return { mean: null, least: null, most: null, count: 0 };
  const sum = values.reduce((one, other) => one + other, 0);
  return { mean: sum / values.length, least: Math.min(...values), most: Math.max(...values), count: values.length };
}

//: Function from places, asked from left to right, to the values of a line; null outside of it and in its gaps.
function walkAlong(points, isStepped) {
  const line = [...points].sort((one, other) => one.x - other.x);
  let index = 0;
  return (x) => {
    while (index + 1 < line.length && line[index + 1].x <= x) index += 1;
    const [before, after] = [line[index], line[index + 1]];
    if (x < before.x || (!after && x > before.x)) return null;
    if (isStepped || x === before.x) return before.value;
    if (before.value === null || after.value === null) return null;
    return before.value + ((after.value - before.value) * (x - before.x)) / (after.x - before.x);
  };
}

//: Outline of the band as Plotly fills it: a polygon for each stretch without a gap. A log axis has no place for 0.
export function outlineOf(points, { isStepped, isLog }) {
  const outline = { x: [], y: [] };
  for (const stretch of stretchesOf(points, ({ least }) => least !== null && !(isLog && least <= 0))) {
    const edge = (name) => (isStepped ? stairs(stretch, name) : stretch.map((point) => [point.x, point[name]]));
    for (const [x, y] of [...edge("most"), ...edge("least").reverse(), [null, null]]) {
      outline.x.push(x);
      outline.y.push(y);
    }
  }
  return outline;
}

function stretchesOf(points, isIn) {
  const stretches = [[]];
  for (const point of points) {
    if (isIn(point)) stretches.at(-1).push(point);
    else stretches.push([]);
  }
  return stretches.filter((stretch) => stretch.length > 1);
}

function stairs(points, name) {
  return points.flatMap((point, index) => [...(index ? [[point.x, points[index - 1][name]]] : []), [point.x, point[name]]]);
}
