// What is chosen, and what the reader does.

const byId = id => document.getElementById(id);
const slider = byId('step'), cursor = byId('cursor'), tip = byId('tip');
const chosen = {step: nSteps - 1, followed: null, pointed: null, cursor: {step: 0, slot: 0}};
let player = null;

// --- showing what is chosen

let stale = false;
function redraw(whole) {
  stale ||= whole;
  cancelAnimationFrame(redraw.frame);
  redraw.frame = requestAnimationFrame(() => {
    if (stale) drawThreads();
    stale = false;
    drawMarks(chosen);
    drawCurves(chosen);
  });
}

function showReading() {
  byId('reading').replaceChildren(
    ...(chosen.followed ? reading(chosen.followed, letGo) : overview(chosen.step, follow)));
  showTables();
}

function showTables() {
  if (byId('particles').open) byId('particles').lastElementChild.replaceChildren(particlesTable(chosen.step));
  if (byId('steps').open) byId('steps').lastElementChild.replaceChildren(stepsTable());
}

function setStep(step) {
  chosen.step = Math.min(nSteps - 1, Math.max(0, step));
  chosen.pointed = null;
  hideTip();
  slider.value = chosen.step + 1;
  byId('where').textContent = `step ${chosen.step + 1} of ${nSteps}`;
  slider.setAttribute('aria-valuetext', `step ${chosen.step + 1} of ${nSteps}: ${stepInWords(chosen.step)}`);
  bring(inExtent.x(chosen.step), null);
  showReading();
  redraw(false);
}

function follow(particle) {
  chosen.followed = particle;
  if (particle.step > chosen.step) setStep(particle.step);
  placeCursor(particle);
  bring(inExtent.x(particle.step), inExtent.y(particle.slot));
  showReading();
  cursor.focus({preventScroll: true});
  byId('panel').scrollTop = 0;
  byId('said').textContent = `Following particle ${particle.slot} of step ${particle.step + 1} back to the start`;
  redraw(false);
}

function letGo() {
  chosen.followed = null;
  showReading();
  cursor.focus({preventScroll: true});
  byId('said').textContent = 'No ancestry is followed';
  redraw(false);
}

/** Scroll so that a place is in view; null for wherever it is. */
function bring(x, y) {
  const nearest = (place, start, room) => place === null
    ? start : Math.min(Math.max(start, place + 20 - room), Math.max(0, place - 20));
  scroller.scrollLeft = nearest(x, scroller.scrollLeft, scroller.clientWidth);
  scroller.scrollTop = nearest(y, scroller.scrollTop, scroller.clientHeight);
}

// --- pointing

function showTip(x, y, ...content) {
  tip.replaceChildren(...content);
  tip.hidden = false;
  const box = tip.getBoundingClientRect(), gap = 14;
  const left = x + gap + box.width > innerWidth - 8 ? x - gap - box.width : x + gap;
  const top = y + gap + box.height > innerHeight - 8 ? y - gap - box.height : y + gap;
  tip.style.left = `${Math.max(8, Math.min(left, innerWidth - 8 - box.width))}px`;
  tip.style.top = `${Math.max(8, Math.min(top, innerHeight - 8 - box.height))}px`;
}

function hideTip() {
  tip.hidden = true;
}

function showParticleTip(particle, x, y) {
  const {step, slot} = particle, texts = textsOf(step);
  showTip(x, y, element('strong', {}, `Particle ${slot} at step ${step + 1}`),
    element('div', {className: 'soft'}, particleInWords(particle)),
    texts ? textElement(texts[slot], 300) : '');
}

function particleUnder(event) {
  const box = chart.getBoundingClientRect();
  return particleAt(event.clientX - box.left, event.clientY - box.top, chosen.step);
}

function point(event) {
  chosen.pointed = particleUnder(event);
  if (chosen.pointed) showParticleTip(chosen.pointed, event.clientX, event.clientY);
  else hideTip();
  redraw(false);
}

function stopPointing() {
  chosen.pointed = null;
  hideTip();
  redraw(false);
}

function stepUnder(event) {
  const step = Math.floor((event.clientX - curves.getBoundingClientRect().left - GUTTER + view.left) / view.column);
  return step >= 0 && step < nSteps ? step : null;
}

// --- the particle that has the focus

function placeCursor(particle) {
  chosen.cursor = particle;
  cursor.style.left = `${inExtent.x(particle.step)}px`;
  cursor.style.top = `${inExtent.y(particle.slot)}px`;
  cursor.setAttribute('aria-label', particleAloud(particle));
}

const MOVES = {
  ArrowLeft: ({step, slot}) => ({step: step - 1, slot}),
  ArrowRight: ({step, slot}) => ({step: step + 1, slot}),
  ArrowUp: ({step, slot}) => ({step, slot: slot - 1}),
  ArrowDown: ({step, slot}) => ({step, slot: slot + 1}),
  PageUp: ({step, slot}) => ({step, slot: slot - 10}),
  PageDown: ({step, slot}) => ({step, slot: slot + 10}),
  Home: ({slot}) => ({step: 0, slot}),
  End: ({slot}) => ({step: nSteps - 1, slot}),
};

function showFocus() {
  const particle = chosen.cursor;
  bring(inExtent.x(particle.step), inExtent.y(particle.slot));
  chosen.pointed = particle;
  const box = cursor.getBoundingClientRect();
  showParticleTip(particle, box.right, box.bottom);
  redraw(false);
}

function moveCursor(event) {
  const move = MOVES[event.key];
  if (!move || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  const {step, slot} = move(chosen.cursor);
  const particle = {
    step: Math.min(nSteps - 1, Math.max(0, step)), slot: Math.min(nParticles - 1, Math.max(0, slot)),
  };
  if (particle.step > chosen.step) setStep(particle.step);
  placeCursor(particle);
  byId('said').textContent = particleAloud(particle);
  showFocus();
}

// --- replaying

function pause() {
  clearInterval(player);
  player = null;
  byId('play').textContent = 'Play';
}

function play() {
  if (chosen.step === nSteps - 1) setStep(0);
  byId('play').textContent = 'Pause';
  player = setInterval(() => {
    if (chosen.step < nSteps - 1) setStep(chosen.step + 1);
    if (chosen.step === nSteps - 1) pause();
  }, Math.min(700, Math.max(60, 8000 / nSteps)));
}

// --- listening

function arrange() {
  layOut();
  byId('fit').hidden = view.fits;
  placeCursor(chosen.cursor);
  redraw(true);
}

function listen() {
  slider.addEventListener('input', () => { pause(); setStep(slider.value - 1); });
  byId('play').addEventListener('click', () => player === null ? play() : pause());
  byId('fit').addEventListener('click', () => {
    view.all = !view.all;
    byId('fit').setAttribute('aria-pressed', view.all);
    arrange();
    bring(inExtent.x(chosen.cursor.step), inExtent.y(chosen.cursor.slot));
  });
  scroller.addEventListener('scroll', () => { scrolled(); redraw(true); });
  scroller.addEventListener('pointermove', point);
  scroller.addEventListener('pointerleave', stopPointing);
  scroller.addEventListener('click', event => {
    const particle = particleUnder(event);
    if (particle) follow(particle);
  });
  cursor.addEventListener('keydown', moveCursor);
  cursor.addEventListener('focus', () => { if (cursor.matches(':focus-visible')) showFocus(); });
  cursor.addEventListener('blur', stopPointing);
  cursor.addEventListener('click', event => { event.stopPropagation(); follow(chosen.cursor); });
  curves.addEventListener('pointermove', event => {
    const step = stepUnder(event);
    if (step === null) return hideTip();
    showTip(event.clientX, event.clientY, element('strong', {}, `Step ${step + 1}`),
      element('div', {}, stepInWords(step)));
  });
  curves.addEventListener('pointerleave', hideTip);
  curves.addEventListener('click', event => { if (stepUnder(event) !== null) setStep(stepUnder(event)); });
  document.addEventListener('keydown', event => {
    if (event.key !== 'Escape') return;
    if (chosen.followed) letGo();
    stopPointing();
  });
  for (const id of ['particles', 'steps']) byId(id).addEventListener('toggle', showTables);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { readInks(); redraw(true); });
  new ResizeObserver(arrange).observe(chart);
}

fillHeader();
if (nSteps) {
  slider.max = nSteps;
  readInks();
  curves.setAttribute('aria-label', curvesInWords());
  layOut();
  const [heaviest] = outcomesOf(nSteps - 1);
  chosen.cursor = {step: nSteps - 1, slot: heaviest?.slot ?? 0};
  setStep(nSteps - 1);
  arrange();
  listen();
} else {
  document.querySelector('main').replaceChildren(element('p', {}, 'This run has taken no step.'));
}
