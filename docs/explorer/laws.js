// The laws of q and of g_q(x), as in qneurons.moments: pure functions of numbers.

const normalDensity = (z) => Math.exp(-0.5 * z * z) / Math.sqrt(2 * Math.PI);

/** P(N(0, 1) < z); below 0 with full relative accuracy. */
function normalCdf(z) {
  const t = Math.abs(z);
  let tail;
  if (t < 3) { // Σ t^(2k + 1) / (1 · 3 · … · (2k + 1))
    let term = t, sum = t;
    for (let k = 3; term > 1e-17 * sum; k += 2) sum += term *= t * t / k;
    tail = 0.5 - normalDensity(t) * sum;
  } else { // Laplace's continued fraction
    let below = t;
    for (let k = 60; k > 0; k--) below = t + k / below;
    tail = normalDensity(t) / below;
  }
  return z < 0 ? tail : 1 - tail;
}

function normalQuantile(rank) {
  let low = -9, high = 9;
  for (let k = 0; k < 55; k++) {
    const middle = (low + high) / 2;
    if (normalCdf(middle) < rank) low = middle; else high = middle;
  }
  return (low + high) / 2;
}

const clip = (value, low, high) => Math.min(Math.max(value, low), high);
const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const softplus = (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
const gated = (gate, gateSlope) => ({ // f(x) = x gate(x)
  f: (x) => x * gate(x),
  slope: (x) => gate(x) + x * gateSlope(x),
});
const elu = (alpha, scale) => ({
  f: (x) => scale * (x < 0 ? alpha * Math.expm1(x) : x),
  slope: (x) => scale * (x < 0 ? alpha * Math.exp(x) : 1),
  linear: [[0, Infinity, scale]],
});
const piecewise = (...parts) => { // each from, to, slope and value at 0
  const part = (x) => parts.findLast(([from]) => x >= from);
  return {
    f: (x) => part(x)[2] * x + part(x)[3],
    slope: (x) => part(x)[2],
    linear: parts,
  };
};
const GELU = 2 * Math.sqrt(2 / Math.PI), CUBIC = 0.044715;
const geluGate = (x) => sigmoid(GELU * x * (1 + CUBIC * x * x));
const mishGate = (x) => Math.tanh(softplus(x));

/** f, f' (at a kink from the right), the linear parts of f, and points that cut its integrals. */
const ACTIVATIONS = {
  sigmoid: { f: sigmoid, slope: (x) => sigmoid(x) * sigmoid(-x) },
  tanh: { f: Math.tanh, slope: (x) => Math.cosh(x) ** -2 },
  relu: piecewise([-Infinity, 0, 0, 0], [0, Infinity, 1, 0]),
  relu2: {
    f: (x) => Math.max(x, 0) ** 2,
    slope: (x) => 2 * Math.max(x, 0),
    linear: [[-Infinity, 0, 0]],
  },
  leaky_relu: piecewise([-Infinity, 0, 0.01, 0], [0, Infinity, 1, 0]),
  elu: elu(1, 1),
  selu: elu(1.6732632423543772, 1.0507009873554805),
  celu: elu(1, 1),
  softplus: { f: softplus, slope: sigmoid },
  silu: gated(sigmoid, (x) => sigmoid(x) * sigmoid(-x)),
  gelu: gated(normalCdf, normalDensity),
  gelu_tanh: gated(geluGate, (x) =>
    GELU * (1 + 3 * CUBIC * x * x) * geluGate(x) * geluGate(-x)),
  quick_gelu: gated((x) => sigmoid(1.702 * x), (x) =>
    1.702 * sigmoid(1.702 * x) * sigmoid(-1.702 * x)),
  mish: gated(mishGate, (x) => (1 - mishGate(x) ** 2) * sigmoid(x)),
  hardtanh: piecewise([-Infinity, -1, 0, -1], [-1, 1, 1, 0], [1, Infinity, 0, 1]),
  relu6: piecewise([-Infinity, 0, 0, 0], [0, 6, 1, 0], [6, Infinity, 0, 6]),
  hardsigmoid: piecewise([-Infinity, -3, 0, 0], [-3, 3, 1 / 6, 0.5], [3, Infinity, 0, 1]),
  hardswish: {
    f: (x) => x * clip(x + 3, 0, 6) / 6,
    slope: (x) => x < -3 ? 0 : x < 3 ? x / 3 + 0.5 : 1,
    linear: [[-Infinity, -3, 0], [3, Infinity, 1]],
  },
  softsign: { f: (x) => x / (1 + Math.abs(x)), slope: (x) => (1 + Math.abs(x)) ** -2 },
  sin: {
    f: Math.sin,
    slope: Math.cos,
    points: Array.from({ length: 241 }, (_, k) => (k - 120) * Math.PI), // a panel for each arch
  },
  identity: piecewise([-Infinity, Infinity, 1, 0]),
};

const limitAt = (row, x) => x * row.slope(x);

/** g(x, δ) = (f(x + δx) - f(x)) / δ. Below 1e-7 rounding would spoil it more than f'(x)x does. */
const difference = (row, x, delta) =>
  Math.abs(delta) < 1e-7 ? limitAt(row, x) : (row.f(x * (1 + delta)) - row.f(x)) / delta;

const toDelta = (eps, lam, phi) => lam * eps + (eps < 0 ? -phi : phi);
const toEps = (delta, lam, phi) => (delta - clip(delta, -phi, phi)) / lam;

/** Outside of the hole, and at its edges, where rounding may fall into it. */
const densityOfQ = (q, lam, phi) => normalDensity(Math.max(Math.abs(q - 1) - phi, 0) / lam) / lam;
const chanceOfNegativeQ = (lam, phi) => normalCdf(toEps(-1, lam, phi));

/** The values that g_q(x) takes with positive probability, the likeliest first. */
function atomsAt(row, x, lam, phi) {
  if (x === 0) return [{ value: 0, mass: 1 }];
  const atoms = [];
  for (const [from, to, slope] of row.linear ?? []) {
    if (x < from || x > to) continue;
    const ends = [from, to].map((b) => toEps(b / x - 1, lam, phi));
    const [low, high] = [Math.min(...ends), Math.max(...ends)];
    const mass = low > 0 ? normalCdf(-low) - normalCdf(-high) : normalCdf(high) - normalCdf(low);
    if (mass > 0) atoms.push({ value: x * slope, mass });
  }
  return atoms.sort((a, b) => b.mass - a.mass);
}

const LARGEST_EPS = 8.5; // beyond it lies a probability of 2e-17
const POWERS = Array.from({ length: 12 }, (_, k) => 3 ** (k - 8));
const withSigns = (values) => [0, ...values, ...values.map((value) => -value)];

/** E[h(g_q(x))]: Gauss's rule in panels of ε, which end at kinks of f and changes of scale. */
function expectation(row, x, lam, phi, h) {
  const kinks = (row.linear ?? []).flatMap(([from, to]) => [from, to]);
  const points = [...withSigns(POWERS), ...kinks, ...(row.points ?? [])];
  const deltas = [...withSigns(POWERS), ...(x === 0 ? [] : points.map((b) => b / x - 1))];
  const ends = [...withSigns([1.25, 2.75, 4.5, 6.5, LARGEST_EPS]),
    ...deltas.map((delta) => toEps(delta, lam, phi))];
  const panels = Float64Array.from(ends, (end) => clip(end, -LARGEST_EPS, LARGEST_EPS)).sort();
  let total = 0;
  for (let k = 1; k < panels.length; k++) {
    const start = panels[k - 1], width = panels[k] - start;
    if (width < 1e-12) continue;
    for (const [node, weight] of DATA.gaussLegendre) {
      const eps = start + width * node;
      const g = difference(row, x, toDelta(eps, lam, phi));
      total += width * weight * normalDensity(eps) * h(g);
    }
  }
  return total;
}

const meanAt = (row, x, lam, phi) => expectation(row, x, lam, phi, (g) => g);

function varianceAt(row, x, lam, phi) {
  const mean = meanAt(row, x, lam, phi);
  return expectation(row, x, lam, phi, (g) => (g - mean) ** 2);
}

const ranks = (count) =>
  Float64Array.from({ length: count }, (_, k) => normalQuantile((k + 0.5) / count));
const BAND_EPS = ranks(1000), LAW_EPS = ranks(4000); // each ε stands for the same probability

/** The quantile of sorted values, between its two neighbours along a line. */
function quantile(sorted, rank) {
  const at = rank * (sorted.length - 1), k = Math.floor(at);
  return sorted[k] + (at - k) * ((sorted[k + 1] ?? sorted[k]) - sorted[k]);
}

/** f, limit, mean, atoms and for each band its lower and upper end, at every x. */
function neuronLaw(row, lam, phi, xs) {
  const law = { x: xs, f: xs.map(row.f), limit: xs.map((x) => limitAt(row, x)) };
  law.mean = xs.map((x) => meanAt(row, x, lam, phi));
  law.atoms = xs.map((x) => atomsAt(row, x, lam, phi)[0] ?? { value: 0, mass: 0 });
  law.low = DATA.bands.map(() => []);
  law.high = DATA.bands.map(() => []);
  for (const x of xs) {
    const g = BAND_EPS.map((eps) => difference(row, x, toDelta(eps, lam, phi))).sort();
    DATA.bands.forEach((band, i) => {
      law.low[i].push(quantile(g, (1 - band) / 2));
      law.high[i].push(quantile(g, (1 + band) / 2));
    });
  }
  return law;
}

/** The law of g_q(x): its atoms, and the probability of each bin by the rest. */
function lawAt(row, x, lam, phi, numBins = 200) {
  const atoms = atomsAt(row, x, lam, phi);
  const onAtom = (delta) => x === 0 || (row.linear ?? []).some(([from, to]) =>
    from <= x && x <= to && from <= x * (1 + delta) && x * (1 + delta) <= to);
  const pairs = []; // g at both ends of a step in ε; all steps have the same probability
  let last;
  for (const eps of LAW_EPS) {
    const delta = toDelta(eps, lam, phi);
    const g = onAtom(delta) ? undefined : difference(row, x, delta);
    // No pair reaches across the hole of q.
    if (g !== undefined) pairs.push(last === undefined || last.eps < 0 !== eps < 0 ? [g, g]
      : [Math.min(last.g, g), Math.max(last.g, g)]);
    last = g === undefined ? undefined : { g, eps };
  }
  const low = pairs.reduce((least, [a]) => Math.min(least, a), Infinity);
  const high = pairs.reduce((most, [, b]) => Math.max(most, b), -Infinity);
  const bins = new Float64Array(numBins), width = (high - low) / numBins;
  const share = (1 - atoms.reduce((sum, { mass }) => sum + mass, 0)) / pairs.length;
  const binOf = (g) => width > 0 ? clip(Math.floor((g - low) / width), 0, numBins - 1) : 0;
  for (const [a, b] of pairs) {
    const first = binOf(a), end = binOf(b);
    if (first === end) { bins[first] += share; continue; }
    for (let k = first; k <= end; k++) {
      const overlap = Math.min(b, low + (k + 1) * width) - Math.max(a, low + k * width);
      bins[k] += share * overlap / (b - a);
    }
  }
  return { atoms, low, high, bins };
}

/** Normal draws, as a function of the seed alone: the generator mulberry32. */
function normalDraws(seed, count) {
  let state = seed >>> 0;
  const uniform = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (((t ^ (t >>> 14)) >>> 0) + 0.5) / 2 ** 32;
  };
  return Array.from({ length: count }, () => normalQuantile(uniform()));
}
