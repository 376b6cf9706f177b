// The run: what the page was given, and what follows from it. Steps are counted from 0 here, and shown from 1.

const data = JSON.parse(document.getElementById('data').textContent);
const nParticles = data.n;
const nSteps = data.steps.length;
const RUNNING = 0, FINISHED = 1, DEAD = 2;
const STATE_NAMES = ['running', 'finished', 'dead'];

/** Which particle of the step before a particle continues; -1 at the first step. */
function parentOf(step, slot) {
  if (step === 0) return -1;
  const ancestors = data.steps[step].ancestors;
  return ancestors === null ? slot : ancestors[slot];
}

/** Weights of a step that sum to one; all 0 if all are dead. */
const weights = data.steps.map(({logWeights}) => {
  const peak = logWeights.reduce((top, value) => value === null ? top : Math.max(top, value), -Infinity);
  const masses = Float64Array.from(logWeights, value => value === null ? 0 : Math.exp(value - peak));
  const total = masses.reduce((sum, mass) => sum + mass, 0);
  return total > 0 ? masses.map(mass => mass / total) : masses;
});
const largestWeight = weights.reduce((top, row) => row.reduce((a, b) => Math.max(a, b), top), 0) || 1;

const states = data.steps.map(({logWeights, finished}) => {
  const row = Uint8Array.from(logWeights, value => value === null ? DEAD : RUNNING);
  for (const slot of finished) if (row[slot] === RUNNING) row[slot] = FINISHED;
  return row;
});

/** Whether a particle has a living descendant at the last step. */
const lasting = data.steps.map(() => new Uint8Array(nParticles));
for (let slot = 0; slot < nParticles && nSteps; slot++) {
  if (states[nSteps - 1][slot] !== DEAD) lasting[nSteps - 1][slot] = 1;
}
for (let step = nSteps - 1; step > 0; step--) {
  for (let slot = 0; slot < nParticles; slot++) {
    if (lasting[step][slot]) lasting[step - 1][parentOf(step, slot)] = 1;
  }
}

const told = [];
/** The texts of a step, and where in each what is new begins and ends; null if none were kept. */
function textsOf(step) {
  if (!data.keepTexts) return null;
  for (let s = told.length; s <= step; s++) {
    told.push(data.steps[s].texts.map(([kept, rest, from = kept, to = null], slot) => {
      const before = s === 0 ? '' : told[s - 1][parentOf(s, slot)].text;
      const text = before.slice(0, kept) + rest;
      return {text, from, to: to ?? text.length};
    }));
  }
  return told[step];
}

/** A particle and all it descends from, the first step first. */
function ancestryOf(particle) {
  const line = [];
  for (let {step, slot} = particle; step >= 0; slot = parentOf(step, slot), step--) line.unshift({step, slot});
  return line;
}

function percent(share) {
  if (share > 0 && share < 0.0005) return '< 0.1 %';
  return `${(100 * share).toFixed(1)} %`;
}

function decimal(value, digits) {
  if (value === null) return '−∞';
  const shown = value.toFixed(digits);
  return Number(shown) === 0 ? shown.replace('-', '') : shown.replace('-', '−');
}

function inSeconds(value) {
  return value < 10 ? Number(value.toPrecision(2)).toString() : value.toFixed(0);
}
