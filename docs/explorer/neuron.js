// The section of one q-activation: its five charts, its numbers, and its lines of Python.

const REACH = 4; // charts show x in ±REACH
const COLUMNS = evenly(-REACH, REACH, 121), DRAWN_AT = evenly(-REACH, REACH, 81);

let known = {}; // the last law: dragging x does not change it
function currentLaw() {
  const { f, lam, phi } = state, key = [f, lam, phi].join();
  if (known.key !== key) known = { key, law: neuronLaw(ACTIVATIONS[f], lam, phi, COLUMNS) };
  return known.law;
}

function drawNeuronChart(row, x, g) {
  const law = currentLaw();
  const draws = normalDraws(state.seed, DRAWN_AT.length)
    .map((eps, k) => difference(row, DRAWN_AT[k], toDelta(eps, state.lam, state.phi)));
  const chart = drawAxes(byId("neuron-chart"), {
    x: [-REACH, REACH],
    y: rangeOf([...law.low, ...law.high, law.f, law.limit, law.mean, draws, [g]].flat()),
    height: 380, xLabel: "x", yLabel: "g_q(x)",
  });
  law.low.forEach((low, k) => chart.band(law.x, low, law.high[k], { class: "band" }));
  law.x.slice(1).forEach((end, k) => { // the likeliest value at each x, as wide as its probability
    const start = law.x[k], [one, two] = law.atoms.slice(k, k + 2);
    // No atom rises faster than x; a steeper step is a jump to another one.
    const isJump = Math.abs(two.value - one.value) > 2 * (end - start);
    if (one.mass && two.mass && !isJump) {
      const width = 3 * (one.mass + two.mass);
      chart.line([start, end], [one.value, two.value], { class: "atom", "stroke-width": width });
    }
  });
  draws.forEach((value, k) =>
    chart.draw("circle", { class: "draw", cx: chart.X(DRAWN_AT[k]), cy: chart.Y(value), r: 2 }));
  for (const name of ["mean", "f", "limit"]) {
    chart.line(law.x, law[name], { class: name, "data-line": name });
  }
  chart.upright(x, "handle");
  chart.draw("circle", { class: "now", cx: chart.X(x), cy: chart.Y(g), r: 5 });
}

function drawSecant(row, x, q, g) {
  const ends = rangeOf([-REACH, REACH, q * x], 0.02);
  const xs = evenly(...ends, 301), ys = xs.map(row.f), foot = row.f(x) - g;
  const chart = drawAxes(byId("secant-chart"), {
    x: ends, y: rangeOf([...ys, row.f(q * x), foot]), xLabel: "x and qx", yLabel: "f",
  });
  const slope = x === 0 ? 0 : g / x; // at 0 there is no secant, and g is 0
  chart.line(xs, ys, { class: "f" });
  chart.line([0, x], [foot, foot], { class: "guide" });
  chart.line(ends, ends.map((at) => foot + slope * at), { class: "secant", "data-line": "secant" });
  chart.line([x, x], [foot, row.f(x)], { class: "rise" });
  for (const [at, name] of [[x, "x"], [q * x, "qx"]]) {
    const [cx, cy] = [chart.X(at), chart.Y(row.f(at))];
    chart.draw("circle", { class: "now", cx, cy, r: 5, "data-point": name });
    chart.label(name, cx, cy - 8);
  }
}

function drawLaw(row, x, g, mean) {
  const { atoms, low, high, bins } = lawAt(row, x, state.lam, state.phi);
  const hasDensity = low < high, width = (high - low) / bins.length;
  const densities = hasDensity ? [...bins].map((mass) => mass / width) : [1];
  const room = 1.15; // above the highest
  const chart = drawAxes(byId("law-chart"), {
    x: rangeOf([...(hasDensity ? [low, high] : []), ...atoms.map(({ value }) => value), g, mean]),
    y: [0, room * Math.max(...densities)],
    yTicks: hasDensity ? undefined : [],
    xLabel: "value of g_q(x)", yLabel: hasDensity ? "density" : "",
  });
  if (hasDensity) {
    const edges = densities.flatMap((_, k) => [low + k * width, low + (k + 1) * width]);
    const steps = densities.flatMap((density) => [density, density]);
    chart.band(edges, steps.map(() => 0), steps, { class: "bar" });
  }
  chart.upright(mean, "mean");
  const { top, bottom } = chart.box;
  for (const { value, mass } of atoms) { // a probability of 1 is as high as the highest density
    const left = chart.X(value), height = mass * (bottom - top) / room;
    chart.draw("rect", { class: "stem", x: left - 3, width: 6, y: bottom - height, height });
    if (mass > 0.0005) chart.label(`${percent(mass)} at ${short(value)}`, left, bottom - height + 4);
  }
  chart.draw("circle", { class: "now", cx: chart.X(g), cy: bottom - 5, r: 5 });
  return atoms;
}

function drawLawOfQ(q) {
  const { lam, phi } = state, reach = phi + 4 * lam;
  const chart = drawAxes(byId("q-chart"), {
    x: rangeOf([1 - reach, 1 + reach, q], 0.02), y: [0, 1.3 * densityOfQ(1, lam, phi)],
    xLabel: "q", yLabel: "density of q",
  });
  const shade = (from, to, name) => {
    const qs = evenly(from, to, 101), density = qs.map((at) => densityOfQ(at, lam, phi));
    if (from < to) chart.band(qs, qs.map(() => 0), density, { class: name });
  };
  for (const [from, to] of [[1 - reach, 1 - phi], [1 + phi, 1 + reach]]) {
    shade(from, Math.min(to, 0), "negative");
    shade(Math.max(from, 0), to, "bar");
  }
  chart.label(`P(q < 0): ${percent(chanceOfNegativeQ(lam, phi))}`, chart.box.left, chart.box.top + 12);
  chart.draw("circle", { class: "now", cx: chart.X(q), cy: chart.box.bottom - 5, r: 5 });
}

function drawSchedules() {
  const chart = drawAxes(byId("schedule-chart"), {
    x: [1, DATA.epochs], xTicks: [1, ...ticksIn([2, DATA.epochs], 5)], xLabel: "epoch",
    y: [0.01, 12], yTicks: [0.01, 0.1, 1, 10], yLabel: "λ", isLogarithmic: true,
  });
  const middle = Math.ceil(0.45 * DATA.epochs);
  for (const name of SCHEDULES) {
    const { lams } = settingOf(name), isChosen = state.schedule === name;
    chart.line(lams.map((_, k) => k + 1), lams, {
      ...styleOf(name), "stroke-width": isChosen ? 3.5 : 1.5, "data-line": name,
    });
    chart.draw("text", { x: chart.X(middle), y: chart.Y(scheduledLam(name, middle)) - 5 }, name);
  }
  if (state.schedule === "none") return;
  chart.upright(state.epoch, "handle");
  chart.draw("circle", { class: "now", cx: chart.X(state.epoch), cy: chart.Y(state.lam), r: 5 });
}

/** The lines that train a model with a setting. */
function trainingPython(setting, more = "") {
  const isAnnealed = new Set(settingOf(setting).lams).size > 1;
  return [
    `model = qn.convert(model, "${setting}"${more})`,
    ...(isAnnealed ? ["scheduler = qn.LambdaScheduler(model)  # .step() after each epoch"] : []),
  ];
}

function neuronPython() {
  const { f, lam, phi, x, schedule } = state, law = `"${f}", lam=${lam}, phi=${phi}`;
  return [
    "import qneurons as qn",
    "",
    ...(schedule === "none" ? [`layer = qn.QActivation(${law})`]
      : trainingPython(schedule, `, phi=${phi}`)),
    `mean = qn.moments.mean(${x}, ${law})`,
  ].join("\n");
}

/** Draws the section and returns its numbers in words. */
function drawNeuron() {
  const { f, lam, phi, x, eps } = state, row = ACTIVATIONS[f];
  const delta = toDelta(eps, lam, phi), g = difference(row, x, delta);
  const mean = meanAt(row, x, lam, phi);
  drawNeuronChart(row, x, g);
  drawSecant(row, x, 1 + delta, g);
  const atoms = drawLaw(row, x, g, mean);
  drawLawOfQ(1 + delta);
  drawSchedules();
  const numbers = [
    ["f(x)", short(row.f(x))],
    ["limit f'(x)x", short(limitAt(row, x))],
    ["mean of g_q(x)", short(mean)],
    ["its standard deviation", short(Math.sqrt(varianceAt(row, x, lam, phi)))],
    ["this q", short(1 + delta)],
    ["g_q(x) with this q", short(g)],
    ["P(q < 0)", percent(chanceOfNegativeQ(lam, phi))],
    ...atoms.map(({ value, mass }) => [`P(g_q(x) = ${short(value)})`, percent(mass)]),
  ];
  byId("neuron-numbers").replaceChildren(...numbers.map(([name, text]) =>
    html("div", {}, html("dt", {}, name), html("dd", {}, text))));
  byId("neuron-python").textContent = neuronPython();
  const words = numbers.map((pair) => pair.join(" ")).join(", ");
  return `q-${f}, λ ${short(lam)}, φ ${short(phi)}, x ${short(x)}: ${words}.`;
}
