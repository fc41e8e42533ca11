// The section of the results: the gains, the curves of one cell, and two settings by seed.

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const DASHES = { "-": "none", "--": "6 4", ":": "2 3", "-.": "8 3 2 3" };

const colourOf = (setting) => `var(--setting-${SETTINGS.indexOf(setting)})`;
const styleOf = (setting) =>
  ({ stroke: colourOf(setting), "stroke-dasharray": DASHES[settingOf(setting).dash] });

/** The test accuracies of a run in percent, NaN where missing, as draw_explorer.py encodes them. */
function decode(text) {
  const values = [];
  let value = 0, bits = 0, shift = 0;
  for (const digit of text) {
    const part = DIGITS.indexOf(digit);
    bits |= (part & 31) << shift;
    shift += 5;
    if (part & 32) continue;
    value += bits & 1 ? -(bits >> 1) : bits >> 1;
    values.push(value ? (value - 1) / 100 : NaN);
    bits = shift = 0;
  }
  return values;
}

/** By setting and seed. */
const runsOf = (cell) => cell.decoded ??= Object.fromEntries(
  Object.entries(cell.runs).map(([name, runs]) => [name, runs.map(decode)]));
const meanOf = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Mean and 95 % interval over the seeds that have a value. */
function estimate(values) {
  const found = values.filter(Number.isFinite), n = found.length, mean = meanOf(found);
  const squares = found.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  const half = DATA.t[n] * Math.sqrt(squares / (n - 1) / n);
  return { n, mean, low: mean - half, high: mean + half };
}

/** The estimate of a setting by epoch; minus base in the view of gains. */
function curveOf(cell, setting, view) {
  const runs = runsOf(cell);
  return Array.from({ length: DATA.epochs }, (_, k) => estimate(runs[setting].map((run, seed) =>
    view === "gain" ? run[k] - runs.base[seed][k] : run[k])));
}

/** The mean over the tenth of the epochs around each; fewer at both ends. */
function smooth(values) {
  return values.map((_, k) => {
    const half = Math.min(Math.floor(values.length / 20), k);
    return meanOf(values.slice(k - half, k + half + 1).filter(Number.isFinite));
  });
}

/** One setting minus another by seed, each a mean over the epochs that are compared. */
function differences(cell, one, other) {
  const runs = runsOf(cell), final = (run) => meanOf(run.slice(cell.first - 1, cell.last));
  return runs[one].map((run, seed) => final(run) - final(runs[other][seed]));
}

const wordsOfRow = ({ activation, dropout, protocol }) =>
  [activation, `${dropout ? "with" : "without"} dropout`, protocol].filter(Boolean).join(", ");
const wordsOf = (cell) => `${cell.network} on ${cell.dataset}, ${wordsOfRow(cell)}`;

function makeTile(key, cell, setting) {
  const gain = cell.gains[setting];
  if (!gain) return html("td");
  const words = gain.idle || `${gain.text} points, ${gain.outcome}`;
  const button = html("button", {
    type: "button", class: `tile ${gain.outcome}`, style: `--size: ${gain.size}`,
    "data-cell": key, "data-setting": setting,
    "aria-label": `${setting}, ${wordsOf(cell)}: ${words}`,
  }, ...(gain.idle ? [gain.idle] : [gain.text, html("small", {}, gain.half)]));
  return html("td", {}, button);
}

/** The matrix is made once; later only its marks change. */
function makeMatrix() {
  const compared = SETTINGS.filter((name) => name !== "base");
  const head = ["cell", "base, %", ...compared].map((name) => html("th", { scope: "col" }, name));
  const body = html("tbody");
  let last;
  for (const [key, cell] of CELLS) {
    const where = `${cell.network} on ${cell.dataset}`;
    if (where !== last) {
      const attributes = { scope: "rowgroup", colspan: 2 };
      body.append(html("tr", {}, html("th", attributes, where)));
    }
    last = where;
    body.append(html("tr", {}, html("th", { scope: "row" }, wordsOfRow(cell)),
      html("td", {}, cell.base), ...compared.map((setting) => makeTile(key, cell, setting))));
  }
  byId("matrix").append(html("thead", {}, html("tr", {}, ...head)), body);
}

/** Marks what is chosen. Tab reaches one tile only, and arrow keys the others. */
function markMatrix() {
  const tiles = [...byId("matrix").querySelectorAll("button")];
  const isHere = ({ dataset }) => dataset.cell === state.cell;
  const isChosen = (tile) => isHere(tile) && state.pins.includes(tile.dataset.setting);
  for (const tile of tiles) {
    tile.setAttribute("aria-pressed", isChosen(tile));
    tile.tabIndex = -1;
  }
  (tiles.find(isChosen) ?? tiles.find(isHere)).tabIndex = 0;
}

const ARROWS = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] };

function moveInMatrix(event) {
  const rows = [...byId("matrix").rows].map((row) => [...row.querySelectorAll("button")])
    .filter((row) => row.length);
  const k = rows.findIndex((row) => row.includes(event.target));
  if (k < 0 || !(event.key in ARROWS)) return;
  event.preventDefault();
  const [down, right] = ARROWS[event.key], row = rows[clip(k + down, 0, rows.length - 1)];
  row[clip(rows[k].indexOf(event.target) + right, 0, row.length - 1)].focus();
}

function drawCurves(cell, pins) {
  const isGain = state.view === "gain", epochs = evenly(1, DATA.epochs, DATA.epochs);
  const named = SETTINGS.filter((name) => name in cell.runs && !(isGain && name === "base"));
  // On the scale of a setting that learns nothing the others would merge.
  const left = named.filter((name) => cell.gains[name]?.idle && !pins.includes(name));
  const curves = named.filter((name) => !left.includes(name)).map((name) => {
    const points = curveOf(cell, name, state.view);
    const [mean, low, high] = ["mean", "low", "high"].map((key) => smooth(points.map((p) => p[key])));
    return { name, mean, low, high, isPinned: pins.includes(name), now: points[state.at - 1].mean };
  });
  const settled = Math.floor(DATA.epochs / 10); // the first epochs would flatten all others
  const heights = curves.flatMap(({ mean, low, high, isPinned }) =>
    (isPinned ? [...low.slice(settled), ...high.slice(settled)] : mean.slice(settled)));
  const chart = drawAxes(byId("curves-chart"), {
    x: [1, DATA.epochs], xTicks: [1, ...ticksIn([2, DATA.epochs], 8)], xLabel: "epoch", height: 340,
    y: rangeOf(isGain ? [0, ...heights] : heights),
    yLabel: isGain ? "test accuracy minus base, points" : "test accuracy, %",
  });
  if (isGain) chart.level(0, "zero");
  chart.upright(state.at, "handle");
  for (const { name, mean, low, high, isPinned, now } of curves) {
    const fill = colourOf(name), width = isPinned ? 3 : 1.5;
    if (isPinned) chart.band(epochs, low, high, { class: "interval", fill });
    chart.line(epochs, mean, { ...styleOf(name), "stroke-width": width, "data-line": name });
    chart.draw("circle", { fill, cx: chart.X(state.at), cy: chart.Y(now), r: 2 + width });
  }
  byId("not-drawn").textContent = left.length
    ? `Not drawn because they learn nothing: ${left.join(", ")}. Pin one to draw it.` : "";
}

/** Every setting in the epoch of the slider, with a button that pins it. */
function fillValues(cell, pins) {
  const text = ({ mean, low, high }, form) => !Number.isFinite(mean) ? "–"
    : form(mean) + (Number.isFinite(low) ? ` [${form(low)}, ${form(high)}]` : "");
  const rows = SETTINGS.filter((name) => name in cell.runs).map((name) => {
    const [accuracy, gain] = ["accuracy", "gain"].map((view) =>
      curveOf(cell, name, view)[state.at - 1]);
    const isPinned = pins.includes(name);
    const button = html("button", { type: "button", "data-pin": name, "aria-pressed": isPinned },
      svg("svg", { class: "swatch", viewBox: "0 0 24 8", "aria-hidden": true },
        svg("path", { d: "M0 4H24", "stroke-width": 3, ...styleOf(name) })),
      name, html("small", {}, isPinned ? "pinned" : "pin"));
    return html("tr", {}, html("th", { scope: "row" }, button),
      html("td", {}, SCHEDULES.includes(name) ? short(scheduledLam(name, state.at)) : "–"),
      html("td", {}, text(accuracy, (value) => value.toFixed(2))),
      html("td", {}, name === "base" ? "–" : text(gain, signed)));
  });
  const focused = document.activeElement.dataset.pin; // it is replaced
  byId("values").tBodies[0].replaceChildren(...rows);
  if (focused) byId("values").querySelector(`[data-pin="${focused}"]`).focus();
  byId("values").caption.textContent = `Epoch ${state.at}: mean over seeds [95 % interval]`;
}

function drawSeeds(cell, pins) {
  if (pins.length < 2) {
    byId("seeds-chart").replaceChildren();
    const missing = state.pins.find((name) => !pins.includes(name));
    return `${missing} was not trained here. Pin another setting.`;
  }
  const [one, other] = pins, values = differences(cell, one, other), found = estimate(values);
  const { X, Y, box, draw, level } = drawAxes(byId("seeds-chart"), {
    x: rangeOf(cell.seeds, 0.08), xTicks: cell.seeds, xLabel: "seed",
    y: rangeOf([0, ...values, found.low, found.high], 0.1), yLabel: `${one} minus ${other}, points`,
  });
  if (Number.isFinite(found.low)) {
    const sides = { x: box.left, width: box.right - box.left };
    draw("rect", { class: "band", ...sides, y: Y(found.high), height: Y(found.low) - Y(found.high) });
  }
  if (found.n) level(found.mean, "mean");
  level(0, "zero");
  values.forEach((value, k) => {
    if (!Number.isFinite(value)) return;
    const place = { cx: X(cell.seeds[k]), cy: Y(value), r: 5, "data-value": value };
    draw("circle", { class: value < 0 ? "worse" : "better", ...place },
      svg("title", {}, `seed ${cell.seeds[k]}: ${signed(value)} points`));
  });
  const higher = values.filter((value) => value > 0).length;
  return `${one} minus ${other} at epochs ${cell.first} to ${cell.last}: ${signed(found.mean)} `
    + `[${signed(found.low)}, ${signed(found.high)}] points, higher in ${higher} of ${found.n} seeds.`;
}

function resultsPython(cell) {
  const setting = state.pins.find((name) => name !== "base");
  const filters = ["dataset", "network", "activation", "protocol"].map((name) =>
    `${name}="${cell[name]}"`);
  return [
    "import polars as pl",
    "import qneurons as qn",
    "",
    ...trainingPython(setting),
    'rows = pl.read_parquet("results/paper/rows.parquet")  # in the repository',
    `rows = rows.filter(${filters.join(", ")}, dropout=${cell.dropout ? "True" : "False"})`,
  ].join("\n");
}

/** Draws the section and returns its main numbers in words. */
function drawResults() {
  const cell = CELLS.get(state.cell), pins = state.pins.filter((name) => name in cell.runs);
  markMatrix();
  byId("cell-title").textContent = wordsOf(cell);
  drawCurves(cell, pins);
  fillValues(cell, pins);
  const words = drawSeeds(cell, pins);
  byId("seeds-words").textContent = words;
  byId("results-python").textContent = resultsPython(cell);
  return `${wordsOf(cell)}: ${words}`;
}
