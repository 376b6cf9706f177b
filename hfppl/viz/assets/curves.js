// Effective sample size and log Z over the steps, below the genealogy and on its columns.

const curves = document.getElementById('curves');
const ESS_BOX = {top: 16, bottom: 56}, LOG_Z_BOX = {top: 80, bottom: 116}, STEP_LABELS = 129;

const threshold = typeof data.run?.ess_threshold === 'number' ? data.run.ess_threshold * nParticles : null;
const logZs = data.steps.map(step => step.logZ);

/** Round numbers from low to high, about as many as asked for. */
function ticks(low, high, count) {
  const rough = (high - low) / count, unit = 10 ** Math.floor(Math.log10(rough));
  const gap = [1, 2, 5, 10].map(times => times * unit).find(size => size >= rough);
  const values = [];
  for (let value = Math.ceil(low / gap) * gap; value <= high + gap * 1e-6; value += gap) values.push(value);
  return {values, digits: Math.max(0, -Math.floor(Math.log10(gap) + 1e-9))};
}

function range(values) {
  const finite = values.filter(value => value !== null);
  if (!finite.length) return null;
  const low = Math.min(...finite), high = Math.max(...finite), pad = high > low ? 0.05 * (high - low) : 1;
  return [low - pad, high + pad];
}
const logZRange = range(logZs);

function drawAxis(pen, box, title, yOfValue, {values, digits}) {
  pen.fillStyle = inks.soft;
  pen.textAlign = 'right';
  pen.textBaseline = 'middle';
  pen.lineWidth = 1;
  for (const value of values) {
    const y = Math.round(yOfValue(value)) + 0.5;
    pen.strokeStyle = inks.grid;
    pen.beginPath();
    pen.moveTo(GUTTER, y);
    pen.lineTo(view.width, y);
    pen.stroke();
    pen.fillText(decimal(value, digits), GUTTER - 6, y);
  }
  pen.strokeStyle = inks.rule;
  pen.beginPath();
  pen.moveTo(GUTTER + 0.5, box.top - 2);
  pen.lineTo(GUTTER + 0.5, box.bottom + 0.5);
  pen.lineTo(view.width, box.bottom + 0.5);
  pen.stroke();
  pen.textAlign = 'left';
  pen.fillStyle = inks.ink;
  pen.fillText(title, GUTTER, box.top - 9);
}

/** A line through the values; a gap where there is none, which is marked at the bottom. */
function drawCurve(pen, box, values, yOfValue, [first, last]) {
  pen.strokeStyle = pen.fillStyle = inks.running;
  pen.lineWidth = 1.5;
  pen.beginPath();
  let joined = false;
  for (let step = first; step <= last; step++) {
    const value = values[step];
    if (value !== null) pen[joined ? 'lineTo' : 'moveTo'](xOf(step), yOfValue(value));
    joined = value !== null;
  }
  pen.stroke();
  for (let step = first; step <= last; step++) {
    if (values[step] === null) pen.fillText('−∞', xOf(step) - 6, box.bottom - 5);
    else if (view.column >= 8) {
      pen.beginPath();
      pen.arc(xOf(step), yOfValue(values[step]), 2, 0, 2 * Math.PI);
      pen.fill();
    }
  }
}

function scale(box, low, high) {
  return value => box.bottom - (box.bottom - box.top) * (value - low) / (high - low);
}

function drawCurves({step}) {
  const pen = context(curves);
  const shown = stepsInView();
  const essY = scale(ESS_BOX, 0, nParticles);
  drawAxis(pen, ESS_BOX, 'effective sample size', essY, {values: [0, nParticles], digits: 0});
  const logZY = logZRange && scale(LOG_Z_BOX, ...logZRange);
  drawAxis(pen, LOG_Z_BOX, 'log Z so far', logZY, logZRange ? ticks(...logZRange, 2) : {values: [], digits: 0});

  pen.save();
  clipToColumns(pen);
  if (threshold !== null) {
    pen.strokeStyle = inks.soft;
    pen.setLineDash([4, 4]);
    pen.beginPath();
    pen.moveTo(GUTTER, essY(threshold));
    pen.lineTo(view.width, essY(threshold));
    pen.stroke();
    pen.setLineDash([]);
  }
  drawCurve(pen, ESS_BOX, data.steps.map(({ess}) => ess), essY, shown);
  drawCurve(pen, LOG_Z_BOX, logZs, logZY, shown);
  pen.fillStyle = inks.soft;
  for (let s = shown[0]; s <= shown[1]; s++) {  // a tick where resampling came before the step
    if (data.steps[s].resampled && s > 0) pen.fillRect(xOf(s) - view.column / 2 - 0.5, ESS_BOX.bottom + 1, 1, 5);
  }
  if (step < nSteps - 1) {
    pen.fillStyle = inks.veil;
    pen.fillRect(xOf(step) + view.column / 2, ESS_BOX.top - 3, view.width, LOG_Z_BOX.bottom - ESS_BOX.top + 3);
  }
  pen.restore();

  pen.fillStyle = inks.soft;
  pen.textAlign = 'center';
  const every = labelEvery(view.column, 34);
  for (let s = shown[0]; s <= shown[1]; s++) {
    const labelled = (s + 1) % every === 0 || (s === 0 && every > 2);
    if (labelled && xOf(s) > GUTTER) pen.fillText(s + 1, Math.min(xOf(s), view.width - 12), STEP_LABELS);
  }
  pen.textAlign = 'right';
  pen.fillText('step', GUTTER - 6, STEP_LABELS);
}

/** What the curves show, in words. */
function curvesInWords() {
  const esses = data.steps.map(({ess}) => ess), lowest = Math.min(...esses);
  return `Effective sample size: ${decimal(esses[0], 1)} at step 1, at its lowest ${decimal(lowest, 1)} at step `
    + `${esses.indexOf(lowest) + 1}, ${decimal(esses.at(-1), 1)} at step ${nSteps}. `
    + `Log Z so far: ${decimal(logZs[0], 2)} at step 1, ${decimal(logZs.at(-1), 2)} at step ${nSteps}.`;
}

function stepInWords(step) {
  const {ess, logZ, seconds, resampled} = data.steps[step];
  const parts = [`ESS ${decimal(ess, 1)}`, `log Z ${decimal(logZ, 3)}`];
  if (seconds !== null) parts.push(`${inSeconds(seconds)} s`);
  if (resampled) parts.push('resampled before');
  return parts.join(' · ');
}
