// Elements, numbers as text, and the axes that all charts share.

const byId = (id) => document.getElementById(id);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
const html = (name, attributes = {}, ...children) =>
  fill(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

const withMinus = (text) => text.replace("-", "−");
const short = (value, digits = 3) => withMinus(String(Number(value.toPrecision(digits))));
const signed = (value) => (value < 0 ? "" : "+") + withMinus(value.toFixed(2));
const percent = (share) =>
  share === 0 || share >= 0.0005 ? `${short(100 * share)} %` : "less than 0.05 %";

const evenly = (low, high, count) =>
  Array.from({ length: count }, (_, k) => low + (high - low) * k / (count - 1));

/** Round numbers in a range, about so many at most. */
function ticksIn([low, high], count) {
  const rough = (high - low) / count, size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((k) => k * size >= rough) * size;
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, k) =>
    Number(((first + k) * step).toPrecision(12)));
}

/** The range of the finite values and a little more, so that nothing at its ends is cut off. */
function rangeOf(values, margin = 0.06) {
  const known = values.filter(Number.isFinite);
  const low = Math.min(...known), high = Math.max(...known);
  const room = margin * (high - low) || 0.1 * Math.abs(low) || 0.5;
  return [low - room, high + room];
}

/** Empties an SVG element, draws its axes, and returns scales to pixels and ways to draw. */
function drawAxes(element, options) {
  const { x, y, xLabel, yLabel, xTicks, yTicks, height = 260, isLogarithmic = false } = options;
  const width = Math.max(element.parentElement.clientWidth, 240);
  const box = { left: 46, right: width - 12, top: 24, bottom: height - 38 };
  const level = (value) => isLogarithmic ? Math.log10(value) : value;
  const [low, high] = y.map(level);
  const X = (value) => box.left + (value - x[0]) / (x[1] - x[0]) * (box.right - box.left);
  const Y = (value) => box.bottom - (level(value) - low) / (high - low) * (box.bottom - box.top);
  element.setAttribute("viewBox", `0 0 ${width} ${height}`);
  element.setAttribute("height", height);
  element.replaceChildren();
  for (const tick of yTicks ?? ticksIn(y, height / 50)) {
    element.append(
      svg("line", { class: "grid", x1: box.left, x2: box.right, y1: Y(tick), y2: Y(tick) }),
      svg("text", { x: box.left - 6, y: Y(tick) + 4, "text-anchor": "end" }, short(tick, 6)),
    );
  }
  for (const tick of xTicks ?? ticksIn(x, width / 45)) {
    element.append(
      svg("line", { class: "grid", x1: X(tick), x2: X(tick), y1: box.top, y2: box.bottom }),
      svg("text", { x: X(tick), y: box.bottom + 16, "text-anchor": "middle" }, short(tick, 6)),
    );
  }
  const middle = (box.left + box.right) / 2;
  const plot = svg("svg", { // an inner svg clips what leaves it
    x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top,
    viewBox: `${box.left} ${box.top} ${box.right - box.left} ${box.bottom - box.top}`,
  });
  element.append(
    svg("text", { x: middle, y: height - 4, "text-anchor": "middle" }, xLabel),
    svg("text", { x: 4, y: 12 }, yLabel),
    plot,
  );
  element.valueAt = (pixel) => { // of the window, for pointers
    const share = (pixel - element.getBoundingClientRect().left - box.left) / (box.right - box.left);
    return clip(x[0] + share * (x[1] - x[0]), ...x);
  };
  const draw = (name, attributes, ...children) => plot.append(svg(name, attributes, ...children));
  const path = (xs, ys) => xs.map((value, k) => [X(value), Y(ys[k])])
    .filter((point) => point.every(Number.isFinite))
    .map((point) => point.map((number) => number.toFixed(1)).join()).join("L");
  return {
    X, Y, box, draw,
    line: (xs, ys, attributes) => draw("path", { fill: "none", d: `M${path(xs, ys)}`, ...attributes }),
    band: (xs, lows, highs, attributes) => draw("path", {
      d: `M${path(xs, highs)}L${path(xs.toReversed(), lows.toReversed())}Z`, ...attributes,
    }),
    upright: (at, name) =>
      draw("line", { class: name, x1: X(at), x2: X(at), y1: box.top, y2: box.bottom }),
    level: (at, name) =>
      draw("line", { class: name, x1: box.left, x2: box.right, y1: Y(at), y2: Y(at) }),
    // A text beside a point, on the side where there is more room.
    label: (words, left, top) => draw("text", {
      x: left + (left > middle ? -9 : 9), y: clip(top, box.top + 12, box.bottom - 4),
      "text-anchor": left > middle ? "end" : "start",
    }, words),
  };
}

/** Calls back with the chart's x while a pointer drags, or hovers, over it. */
function onPointer(element, callback, { hovers = false } = {}) {
  const move = (event) => callback(element.valueAt(event.clientX));
  element.addEventListener("pointerdown", (event) => {
    element.setPointerCapture(event.pointerId);
    move(event);
  });
  element.addEventListener("pointermove", (event) => {
    if (hovers || element.hasPointerCapture(event.pointerId)) move(event);
  });
}
