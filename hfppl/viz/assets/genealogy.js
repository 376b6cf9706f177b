// The genealogy: drawn once for a size and a place, with what changes on a canvas above it.

const threads = document.getElementById('threads');
const marks = document.getElementById('marks');

function clipToColumns(pen) {
  pen.beginPath();
  pen.rect(GUTTER, 0, view.width - GUTTER, view.height);
  pen.clip();
}

/** The line from a particle's parent to it, added to the pen's path. */
function addThread(pen, step, slot) {
  const x0 = xOf(step - 1), y0 = yOf(parentOf(step, slot)), x1 = xOf(step), y1 = yOf(slot);
  pen.moveTo(x0, y0);
  if (y0 === y1 || view.column < 9) pen.lineTo(x1, y1);
  else pen.bezierCurveTo((x0 + x1) / 2, y0, (x0 + x1) / 2, y1, x1, y1);
}

function strokeThreads(pen, wanted) {
  const [firstStep, lastStep] = stepsInView();
  const [firstSlot, lastSlot] = slotsInView();
  for (let step = Math.max(1, firstStep); step <= lastStep; step++) {
    pen.beginPath();
    for (let slot = 0; slot < nParticles; slot++) {
      const parent = parentOf(step, slot);
      const above = slot < firstSlot && parent < firstSlot, below = slot > lastSlot && parent > lastSlot;
      if (lasting[step][slot] === wanted && !above && !below) addThread(pen, step, slot);
    }
    pen.stroke();
  }
}

/** A particle's mark: its shape tells its state, its area its weight. */
function drawParticle(pen, x, y, state, weight, inks) {
  if (state === DEAD) {
    const half = Math.min(3.5, Math.max(1, 0.3 * view.row));
    pen.strokeStyle = inks.dead;
    pen.lineWidth = half < 2 ? 0.8 : 1.3;
    pen.beginPath();
    pen.moveTo(x - half, y - half);
    pen.lineTo(x + half, y + half);
    pen.moveTo(x + half, y - half);
    pen.lineTo(x - half, y + half);
    pen.stroke();
    return;
  }
  const radius = radiusOf(weight);
  const ink = state === FINISHED ? inks.finished : inks.running;
  if (radius < 1) {  // no shape could be seen, only that something is there
    pen.fillStyle = ink;
    pen.fillRect(x - 0.5, y - 0.5, 1, 1);
    return;
  }
  const edge = state === FINISHED && radius > 1.5 ? Math.min(2, 0.45 * radius) : 0;
  pen.beginPath();
  pen.arc(x, y, radius - edge / 2, 0, 2 * Math.PI);
  pen.fillStyle = edge ? inks.ground : ink;
  pen.fill();
  if (edge) {
    pen.strokeStyle = ink;
    pen.lineWidth = edge;
    pen.stroke();
  }
}

const PALE = 0.45;  // of a particle whose lineage ends
const INKS = ['running', 'finished', 'dead', 'ground', 'followed', 'ended', 'lasting', 'soft', 'grid', 'veil',
  'rule', 'ink'];
let inks = {};
function readInks() {
  inks = Object.fromEntries(INKS.map(name => [name, colour(name)]));
}

function drawThreads() {
  const pen = context(threads);
  const [firstStep, lastStep] = stepsInView();
  const [firstSlot, lastSlot] = slotsInView();
  pen.fillStyle = inks.soft;
  pen.textAlign = 'right';
  pen.textBaseline = 'middle';
  pen.fillText('particle', GUTTER - 2, 7);
  const every = labelEvery(view.row, 16);
  for (let slot = Math.ceil(firstSlot / every) * every; slot <= lastSlot; slot += every) {
    if (yOf(slot) > TOP) pen.fillText(slot, GUTTER - 12, yOf(slot));
  }
  pen.save();
  clipToColumns(pen);
  pen.lineWidth = view.row < 8 ? 0.7 : 1.2;
  pen.strokeStyle = inks.ended;
  strokeThreads(pen, 0);
  pen.strokeStyle = inks.lasting;
  strokeThreads(pen, 1);
  const crowd = Math.min(1, Math.max(0.2, view.row));  // where many share a pixel, each adds a little
  for (let step = firstStep; step <= lastStep; step++) {
    for (let slot = firstSlot; slot <= lastSlot; slot++) {
      pen.globalAlpha = crowd * (lasting[step][slot] || states[step][slot] === DEAD ? 1 : PALE);
      drawParticle(pen, xOf(step), yOf(slot), states[step][slot], weights[step][slot], inks);
    }
  }
  pen.restore();
}

function ring(pen, {step, slot}, width) {
  pen.strokeStyle = inks.followed;
  pen.lineWidth = width;
  pen.beginPath();
  const least = states[step][slot] === DEAD ? 5 : 3;
  pen.arc(xOf(step), yOf(slot), Math.max(least, radiusOf(weights[step][slot]) + 2), 0, 2 * Math.PI);
  pen.stroke();
}

/** What is chosen: the step shown last, the ancestry followed, the particle pointed at. */
function drawMarks({step, followed, pointed}) {
  const pen = context(marks);
  pen.save();
  clipToColumns(pen);
  if (step < nSteps - 1) {
    pen.fillStyle = inks.veil;
    pen.fillRect(xOf(step) + view.column / 2, 0, view.width, view.height);
    pen.fillStyle = inks.rule;
    pen.fillRect(xOf(step) + view.column / 2, 0, 1, view.height);
  }
  if (followed) {
    const line = ancestryOf(followed).filter(particle => particle.step <= step);
    pen.strokeStyle = inks.followed;
    pen.lineWidth = 2.5;
    pen.lineJoin = 'round';
    pen.beginPath();
    for (const particle of line) if (particle.step > 0) addThread(pen, particle.step, particle.slot);
    pen.stroke();
    const own = {...inks, running: inks.followed, finished: inks.followed, dead: inks.followed};
    for (const {step: s, slot} of line) {
      drawParticle(pen, xOf(s), yOf(slot), states[s][slot], weights[s][slot], own);
    }
    if (followed.step <= step) ring(pen, followed, 2);
  }
  if (pointed) ring(pen, pointed, 1.5);
  pen.restore();
}
