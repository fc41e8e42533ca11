// What the page shows. It is in the address too, so that a link shows the same.

const SETTINGS = DATA.settings.map(({ name }) => name);
const SCHEDULES = DATA.settings.filter(({ lams }) => lams).map(({ name }) => name);
const settingOf = (name) => DATA.settings[SETTINGS.indexOf(name)];
const scheduledLam = (name, epoch) => settingOf(name).lams[epoch - 1];

const CELLS = new Map(DATA.cells.map((cell) => {
  const { network, activation, dropout, protocol } = cell;
  const parts = [network, activation, dropout ? "dropout" : "plain", protocol];
  return [parts.filter(Boolean).join("/"), cell];
}));

const number = (initial, low, high, isWhole = false) => ({
  initial,
  rule: `a ${isWhole ? "whole " : ""}number from ${low} to ${high}`,
  read: (text) => {
    const value = text.trim() === "" ? NaN : Number(text);
    return value >= low && value <= high && !(isWhole && value % 1) ? value : undefined;
  },
});
const oneOf = (initial, values) => ({
  initial,
  rule: `one of ${values.join(", ")}`,
  read: (text) => values.includes(text) ? text : undefined,
});
const twoOf = (initial, values) => ({
  initial,
  rule: `two of ${values.join(", ")}, as in ${initial}`,
  read: (text) => {
    const both = text.split(",");
    const areTwo = both.length === 2 && both[0] !== both[1];
    return areTwo && both.every((name) => values.includes(name)) ? both : undefined;
  },
});
const FIELDS = {
  f: oneOf("tanh", Object.keys(ACTIVATIONS)),
  lam: number(1, 0.001, 10),
  phi: number(DATA.phi, 0, 1),
  x: number(1.5, -4, 4),
  eps: number(-1.6, -3.5, 3.5),
  seed: number(1, 1, 2 ** 32 - 1, true),
  schedule: oneOf("none", ["none", ...SCHEDULES]),
  epoch: number(1, 1, DATA.epochs, true),
  cell: oneOf([...CELLS.keys()][0], [...CELLS.keys()]),
  view: oneOf("gain", ["gain", "accuracy"]),
  at: number(DATA.epochs, 1, DATA.epochs, true),
  pins: twoOf([SETTINGS.at(-1), SETTINGS[0]], SETTINGS),
};
const state = {};

function readAddress() {
  const problems = [];
  for (const [name, { initial }] of Object.entries(FIELDS)) state[name] = initial;
  for (const [name, text] of new URLSearchParams(location.hash.slice(1))) {
    const field = FIELDS[name], value = field?.read(text);
    if (!field) {
      problems.push(`${name} in the address means nothing; known are ${Object.keys(FIELDS).join(", ")}.`);
    } else if (value === undefined) {
      problems.push(`${name} must be ${field.rule}, and the address has ${text}. `
        + `The page shows ${state[name]}.`);
    } else {
      state[name] = value;
    }
  }
  if (state.schedule !== "none") state.lam = scheduledLam(state.schedule, state.epoch);
  byId("problems").textContent = problems.join(" ");
}

function writeAddress() {
  const isScheduled = state.schedule !== "none"; // then λ follows from it
  const changed = Object.entries(FIELDS).filter(([name, { initial }]) =>
    String(state[name]) !== String(initial) && !(name === "lam" && isScheduled));
  const text = changed.map(([name]) => `${name}=${String(state[name]).replaceAll(" ", "+")}`);
  history.replaceState(null, "", text.length ? `#${text.join("&")}` : location.pathname);
}
