// Ties both sections to their controls.

const NEURON = ["f", "lam", "phi", "x", "eps", "seed", "schedule", "epoch"]; // of the state
const REST_MS = 300; // the address and the words for screen readers follow when a drag rests
let timer;

/** Sliders, from the value to the place and back. That of φ begins at 0 and then at 1e-4. */
const same = (value) => value;
const power = (exponent) => Number((10 ** exponent).toPrecision(3));
const SLIDERS = {
  lam: { place: Math.log10, value: power },
  phi: {
    place: (phi) => phi < 1e-4 ? 0 : 4 + Math.log10(phi),
    value: (place) => place && power(place - 4),
  },
  x: { place: same, value: same },
  eps: { place: same, value: same },
  epoch: { place: same, value: same },
  at: { place: same, value: same },
};

/** Changes fields of the state, and draws the sections that depend on them. */
function show(changes) {
  Object.assign(state, changes);
  for (const [name, { place }] of Object.entries(SLIDERS)) {
    const text = short(state[name]);
    byId(name).value = place(state[name]);
    byId(name).setAttribute("aria-valuetext", text);
    byId(`${name}-value`).textContent = text;
  }
  byId("f").value = state.f;
  byId("schedule").value = state.schedule;
  byId("epoch").disabled = state.schedule === "none";
  byId(`view-${state.view}`).checked = true;
  const names = Object.keys(changes), words = [];
  if (names.some((name) => NEURON.includes(name))) words.push(drawNeuron());
  if (names.some((name) => !NEURON.includes(name))) words.push(drawResults());
  clearTimeout(timer);
  timer = setTimeout(() => {
    writeAddress();
    if (words.length === 1) byId("status").textContent = words[0]; // both are drawn at the start
  }, REST_MS);
}

const showAll = () => show({ ...state });

const showSchedule = (schedule, epoch) =>
  show({ schedule, epoch, ...(schedule === "none" ? {} : { lam: scheduledLam(schedule, epoch) }) });

function move(name, value) {
  if (name === "epoch") showSchedule(state.schedule, value);
  else if (name === "lam") show({ lam: value, schedule: "none" });
  else show({ [name]: value });
}

function drawAgain() {
  const seed = state.seed + 1, eps = normalDraws(seed, DRAWN_AT.length + 1).at(-1);
  show({ seed, eps: clip(Number(eps.toFixed(2)), -3.5, 3.5) });
}

async function copy(id) {
  getSelection().selectAllChildren(byId(id)); // for a browser that refuses the clipboard
  const isCopied = await navigator.clipboard.writeText(byId(id).textContent).then(() => true, () => false);
  const button = byId(`copy-${id}`);
  button.textContent = byId("status").textContent = isCopied ? "Copied." : "Selected; copy it with Ctrl+C.";
  setTimeout(() => { button.textContent = "Copy Python"; }, 3000); // ms
}

function listen() {
  const on = (id, type, callback) => byId(id).addEventListener(type, callback);
  for (const [name, { value }] of Object.entries(SLIDERS)) {
    on(name, "input", ({ target }) => move(name, value(target.valueAsNumber)));
  }
  on("f", "change", ({ target }) => show({ f: target.value }));
  on("schedule", "change", ({ target }) => showSchedule(target.value, state.epoch));
  on("draw", "click", drawAgain);
  onPointer(byId("neuron-chart"), (x) => show({ x: Number(x.toFixed(2)) }));
  onPointer(byId("schedule-chart"), (epoch) => move("epoch", Math.round(epoch)));
  onPointer(byId("curves-chart"), (epoch) => show({ at: Math.round(epoch) }), { hovers: true });
  for (const view of ["gain", "accuracy"]) on(`view-${view}`, "change", () => show({ view }));
  on("matrix", "keydown", moveInMatrix);
  on("matrix", "click", ({ target }) => {
    const tile = target.closest("button");
    if (tile) show({ cell: tile.dataset.cell, pins: [tile.dataset.setting, "base"] });
  });
  on("values", "click", ({ target }) => {
    const setting = target.closest("button")?.dataset.pin;
    // The older of the two makes room.
    if (setting && !state.pins.includes(setting)) show({ pins: [setting, state.pins[0]] });
  });
  for (const id of ["neuron-python", "results-python"]) on(`copy-${id}`, "click", () => copy(id));
  addEventListener("hashchange", () => {
    readAddress();
    showAll();
  });
  const main = document.querySelector("main");
  let width = main.clientWidth;
  new ResizeObserver(() => { // charts are as wide as the page; its height is their own doing
    if (main.clientWidth !== width) showAll();
    width = main.clientWidth;
  }).observe(main);
}

function start() {
  try {
    document.documentElement.dataset.theme = localStorage.getItem("theme"); // the site's switch
  } catch {
    // Storage is refused: the page looks as the system does.
  }
  byId("home").hidden = location.protocol === "file:"; // in the repository there is no site beside it
  byId("about").textContent = DATA.about;
  byId("epoch").max = byId("at").max = DATA.epochs;
  byId("f").append(...Object.keys(ACTIVATIONS).map((name) => html("option", {}, name)));
  const schedules = SCHEDULES.map((name) => [name, `${name}: ${settingOf(name).words}`]);
  byId("schedule").append(...[["none", "none: choose λ"], ...schedules].map(([value, words]) =>
    html("option", { value }, words)));
  byId("settings").append(...DATA.settings.map(({ name, words }) =>
    html("div", {}, html("dt", {}, name), html("dd", {}, words))));
  makeMatrix();
  listen();
  readAddress();
  showAll();
}

start();
