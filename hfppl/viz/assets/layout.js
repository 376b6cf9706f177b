// Where things are: columns are steps, rows are particles. Only what is in view is ever drawn.

const GUTTER = 44, TOP = 16;  // pixels left of the first column, and above the first row
const LEAST_COLUMN = 5, LEAST_ROW = 4, MOST_COLUMN = 110, MOST_ROW = 56, SCROLLBAR = 14;

const chart = document.getElementById('chart');
const scroller = document.getElementById('scroller');
const extent = document.getElementById('extent');
const view = {width: 0, height: 0, column: 1, row: 1, left: 0, top: 0, radius: 1, fits: true, all: false};

/** Sizes of columns and rows, from the room there is. With `view.all` everything is squeezed into it. */
function layOut() {
  const width = Math.max(1, chart.clientWidth - GUTTER), height = Math.max(1, chart.clientHeight - TOP);
  const tall = nParticles * LEAST_ROW > height, broad = nSteps * LEAST_COLUMN > width;
  view.fits = !tall && !broad;
  const scrolls = !view.all && !view.fits;
  const roomX = width - (scrolls && tall ? SCROLLBAR : 2), roomY = height - (scrolls && broad ? SCROLLBAR : 4);
  view.column = Math.min(MOST_COLUMN, Math.max(view.all ? 0 : LEAST_COLUMN, roomX / nSteps));
  view.row = Math.min(MOST_ROW, Math.max(view.all ? 0 : LEAST_ROW, roomY / nParticles));
  view.radius = Math.min(13, Math.max(4, 0.5 * Math.min(1.1 * view.column, 1.25 * view.row)));
  view.width = chart.clientWidth;
  view.height = chart.clientHeight;
  extent.style.width = `${Math.floor(nSteps * view.column)}px`;
  extent.style.height = `${Math.floor(TOP + nParticles * view.row)}px`;
  scrolled();
}

function scrolled() {
  view.left = scroller.scrollLeft;
  view.top = scroller.scrollTop;
}

const inExtent = {x: step => (step + 0.5) * view.column, y: slot => TOP + (slot + 0.5) * view.row};
const xOf = step => GUTTER + inExtent.x(step) - view.left;
const yOf = slot => inExtent.y(slot) - view.top;
const radiusOf = weight => view.radius * Math.sqrt(weight / largestWeight);

/** The first and the last of `count` places that are in view, of a size, `start` pixels from the edge. */
function inView(count, size, start, room) {
  return [Math.max(0, Math.floor(start / size) - 1), Math.min(count - 1, Math.ceil((start + room) / size) + 1)];
}
const stepsInView = () => inView(nSteps, view.column, view.left, view.width - GUTTER);
const slotsInView = () => inView(nParticles, view.row, view.top - TOP, view.height);

/** The particle at a place in the chart; of several too close to tell apart, the heaviest. */
function particleAt(x, y, lastStep) {
  const step = Math.floor((x - GUTTER + view.left) / view.column);
  const slot = Math.floor((y - TOP + view.top) / view.row);
  if (step < 0 || step > lastStep || slot < 0 || slot >= nParticles) return null;
  const reach = Math.floor(3 / view.row);
  let found = slot;
  for (let other = Math.max(0, slot - reach); other <= Math.min(nParticles - 1, slot + reach); other++) {
    if (weights[step][other] > weights[step][found]) found = other;
  }
  return {step, slot: found};
}

/** A canvas made as fine as the screen, cleared, to be drawn on in pixels of the page. */
function context(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.round(canvas.clientWidth * ratio), height = Math.round(canvas.clientHeight * ratio);
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, {width, height});
  const pen = canvas.getContext('2d');
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = '11px system-ui, sans-serif';
  return pen;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Every how many-th of some places gets a label, if each label takes so many pixels. */
function labelEvery(size, room) {
  for (let unit = 1; ; unit *= 10) {
    for (const times of [1, 2, 5]) if (unit * times * size >= room) return unit * times;
  }
}
