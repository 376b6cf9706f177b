// Beside the picture: what the run was, what the particles say, and the same in tables.

const KEEPING = 'Texts were not kept. To keep them, give the driver json_file=... or visualization_dir=...';

const HINT = 'Point at a particle to read it; click on it, or on a text below, to follow its ancestry.';

function fillHeader() {
  const run = data.run;
  document.getElementById('title').append(
    element('bdi', {}, ...seen(run ? run.model : 'A run')), ' ', element('span', {}, ...seen(run?.driver ?? '')));
  document.title = run ? seenAsText(`${run.model} (${run.driver})`) : 'A run';
  const facts = [['particles', nParticles], ['steps', nSteps]];
  if (nSteps) {
    const last = data.steps[nSteps - 1], lastStates = [...states[nSteps - 1]];
    const complete = run === null || !lastStates.includes(RUNNING);
    const nDead = lastStates.filter(state => state === DEAD).length;
    facts.push([complete ? 'log Z' : 'log Z so far', decimal(last.logZ, 3)], ['ESS', decimal(last.ess, 1)]);
    if (nDead) facts.push(['dead', nDead]);
    if (!complete) facts.push(['still running', lastStates.filter(state => state === RUNNING).length]);
  }
  if (run) {
    if (run.resampling_method !== null) {
      facts.push(['resampling', run.resampling_method
        + (run.ess_threshold === null ? ' at each step' : ` when ESS < ${decimal(run.ess_threshold * nParticles, 1)}`)]);
    }
    if (run.n_beam !== null) facts.push(['continuations', run.n_beam]);
    facts.push(['seed', run.seed]);
  }
  const took = nSteps ? data.steps[nSteps - 1].seconds : null;
  if (took !== null) facts.push(['took', `${inSeconds(took)} s`]);
  for (const [name, value] of facts) {
    document.getElementById('facts').append(
      element('div', {}, element('dt', {}, name), element('dd', {}, ...seen(String(value)))));
  }
  if (run === null) {
    document.getElementById('facts').append(
      element('div', {className: 'soft'}, 'an older file: it does not tell who has finished'));
  }
}

function particleInWords({step, slot}) {
  const parent = parentOf(step, slot);
  return [`weight ${percent(weights[step][slot])}`, `log-weight ${decimal(data.steps[step].logWeights[slot], 2)}`,
    STATE_NAMES[states[step][slot]], ...(parent < 0 ? [] : [`continues ${parent}`])].join(' · ');
}

/** For the screen reader, and the name of the particle that has the focus. */
function particleAloud({step, slot}) {
  const text = textsOf(step)?.[slot];
  return `Particle ${slot} at step ${step + 1}: ${particleInWords({step, slot})}`
    + (text ? `. ${seenAsText(text.text)}` : '');
}

/** The texts of a step with their shares of the weight, the largest first, and the heaviest that shows each. */
function outcomesOf(step) {
  const texts = textsOf(step), found = new Map();
  weights[step].forEach((share, slot) => {
    if (share === 0) return;
    const key = texts ? texts[slot].text : slot;
    const outcome = found.get(key);
    if (!outcome) found.set(key, {share, slot});
    else {
      outcome.share += share;
      if (share > weights[step][outcome.slot]) outcome.slot = slot;
    }
  });
  return [...found.values()].sort((a, b) => b.share - a.share);
}

/** What the particles of a step say. */
function overview(step, follow) {
  const texts = textsOf(step), outcomes = outcomesOf(step), shown = outcomes.slice(0, 20);
  const rows = shown.map(({share, slot}) => {
    const bar = element('span', {className: 'bar'});
    bar.style.width = `${100 * share / shown[0].share}%`;
    const what = texts
      ? textElement({text: texts[slot].text, from: texts[slot].text.length, to: texts[slot].text.length})
      : element('div', {}, `particle ${slot}`);
    what.classList.add('clamp');
    const button = element('button', {type: 'button', title: 'Follow the ancestry'},
      element('span', {className: 'share'}, percent(share), bar), what);
    button.addEventListener('click', () => follow({step, slot}));
    return element('li', {}, button);
  });
  const parts = [element('h2', {}, `${texts ? 'Texts' : 'Particles'} at step ${step + 1}, by weight`)];
  if (!texts) parts.push(element('p', {className: 'soft'}, KEEPING));
  else parts.push(element('p', {className: 'soft'}, HINT));
  if (!shown.length) parts.push(element('p', {}, 'All particles are dead.'));
  parts.push(element('ul', {className: 'rows'}, ...rows));
  if (outcomes.length > shown.length) {
    parts.push(element('p', {className: 'soft'}, `and ${outcomes.length - shown.length} more`));
  }
  return parts;
}

/** A particle, its text, and the texts along its ancestry. */
function reading(particle, letGo) {
  const {step, slot} = particle;
  const close = element('button', {type: 'button', className: 'close', title: 'Escape'}, 'Back');
  close.addEventListener('click', letGo);
  const parts = [
    element('div', {className: 'head'}, element('h2', {}, `Particle ${slot} at step ${step + 1}`), close),
    element('p', {className: 'soft'}, particleInWords(particle)),
    textsOf(step) ? textElement(textsOf(step)[slot]) : element('p', {className: 'soft'}, KEEPING),
    element('h3', {}, 'Its ancestry: step, particle, what the step added'),
  ];
  const lines = ancestryOf(particle).map(({step: s, slot: i}) => element('li', {},
    element('span', {className: 'soft'}, s + 1), element('span', {className: 'soft'}, `#${i}`),
    textsOf(s) ? textElement(textsOf(s)[i], 20) : element('span', {}, percent(weights[s][i]))));
  parts.push(element('ol', {className: 'trace'}, ...lines));
  return parts;
}

function table(headings, rows) {
  const isText = content => content instanceof Element || content === 'text';
  const cell = tag => content => element(tag, {className: isText(content) ? 'text' : ''}, content);
  return element('table', {},
    element('thead', {}, element('tr', {}, ...headings.map(cell('th')))),
    element('tbody', {}, ...rows.map(row => element('tr', {}, ...row.map(cell('td'))))));
}

function particlesTable(step) {
  const texts = textsOf(step);
  const rows = Array.from(states[step], (state, slot) => [
    slot, percent(weights[step][slot]), ...(texts ? [textElement(texts[slot])] : []), STATE_NAMES[state],
    parentOf(step, slot) < 0 ? '' : parentOf(step, slot), decimal(data.steps[step].logWeights[slot], 2)]);
  return table(['particle', 'weight', ...(texts ? ['text'] : []), 'state', 'continues', 'log-weight'], rows);
}

function stepsTable() {
  return table(['step', 'ESS', 'log Z so far', 'seconds', 'resampled'], data.steps.map((step, index) => [
    index + 1, decimal(step.ess, 1), decimal(step.logZ, 3), step.seconds === null ? '' : inSeconds(step.seconds),
    step.resampled ? 'yes' : 'no']));
}
