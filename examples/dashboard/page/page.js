'use strict';

const svgNames = 'http://www.w3.org/2000/svg';
const bin = 0.25; // seconds of a bar
const lanes = document.getElementById('lanes');
const state = document.getElementById('state');
const scale = document.getElementById('scale');

function make(name, parent, text = '') {
  const e = document.createElement(name);
  e.textContent = text;
  parent.append(e);
  return e;
}

function shape(name, parent, attributes) {
  const e = document.createElementNS(svgNames, name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  parent.append(e);
  return e;
}

// setText changes a text only if it is another one, so that screen readers do not repeat it.
function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

function makeLane(given) {
  const section = make('section', lanes);
  section.className = 'lane';
  const head = make('div', section);
  make('h2', head, given.name.replace('-', ' '));
  const most = make('span', head);
  const drawing = shape('svg', section, {viewBox: '0 0 1000 100', preserveAspectRatio: 'none', 'aria-hidden': 'true'});
  const width = 1000 * given.window / given.history;
  shape('rect', drawing, {x: 1000 - width, y: 0, width, height: 100});
  return {
    most,
    borders: shape('path', drawing, {class: 'border'}),
    allowed: shape('path', drawing, {class: 'allowed'}),
    denied: shape('path', drawing, {class: 'denied'}),
    total: make('p', section),
    why: make('p', section),
  };
}

// Why an algorithm may admit more than the quota within one window.
const why = {
  'fixed-window': (most, quota, window) => `It counts each period by itself. The end of one period and the beginning of ` +
    `the next have together admitted ${most} requests within ${window} seconds, although the quota is ${quota}.`,
  'sliding-counter': (most, quota, window) => `It takes the requests of the period before as spread evenly over it. They ` +
    `were not, so it has admitted ${most} within ${window} seconds, although the quota is ${quota}.`,
  'token-bucket': (most, quota, window) => `A full bucket admits ${quota} at once, and more as it is filled again: ` +
    `${most} within ${window} seconds.`,
};

// bins counts requests by when they were made. Bars begin with a period, so that they move but do not change.
function bins(ages, since) {
  const counts = new Map();
  for (const age of ages) {
    const i = Math.floor((since - age) / bin);
    counts.set(i, (counts.get(i) || 0) + 1);
  }
  return counts;
}

let shown = null;

function draw(message) {
  const {since} = message;
  shown ??= message.lanes.map(makeLane);
  const counted = message.lanes.map(lane => ({allowed: bins(lane.allowed, since), denied: bins(lane.denied, since)}));
  let tallest = 0;
  for (const {allowed, denied} of counted) {
    for (const i of [...allowed.keys(), ...denied.keys()]) {
      tallest = Math.max(tallest, (allowed.get(i) || 0) + (denied.get(i) || 0));
    }
  }
  const height = 92 / Math.max(tallest, 1);
  message.lanes.forEach((lane, n) => {
    const {allowed, denied} = counted[n];
    const x = age => (1000 * (1 - age / lane.history)).toFixed(1);
    const width = (900 * bin / lane.history).toFixed(1);
    const bar = (i, from, count) =>
      `M${x(since - i * bin)} ${(100 - from * height).toFixed(1)}v${(-count * height).toFixed(1)}h${width}v${(count * height).toFixed(1)}z`;
    let borders = '';
    for (let age = since; age < lane.history; age += lane.window) borders += `M${x(age)} 0V100`;
    const s = shown[n];
    s.borders.setAttribute('d', borders);
    s.allowed.setAttribute('d', [...allowed].map(([i, count]) => bar(i, 0, count)).join(''));
    s.denied.setAttribute('d', [...denied].map(([i, count]) => bar(i, allowed.get(i) || 0, count)).join(''));
    const over = lane.most > lane.quota;
    setText(s.most, over ? `${lane.most} within ${lane.window} seconds, quota ${lane.quota}` : `${lane.most} of ${lane.quota} in one window`);
    s.most.className = over ? 'over' : '';
    setText(s.total, `${lane.allowed.length} admitted, ${lane.denied.length} denied in the last ${lane.history} seconds`);
    setText(s.why, over && why[lane.name] ? why[lane.name](lane.most, lane.quota, lane.window) : '');
  });
  setText(scale, tallest ? `The tallest bar is ${tallest} ${tallest === 1 ? 'request' : 'requests'} in a quarter of a second.` : '');
}

// showState says what was sent last, also to pages that were opened later.
function showState({traffic}) {
  if (!traffic) {
    setText(state, 'No requests yet. Press a button.');
    return;
  }
  const button = document.querySelector(`button[data-kind="${traffic.kind}"]`);
  const what = `${button.firstChild.textContent.trim()}: ${button.querySelector('small').textContent}.`;
  const waits = traffic.kind === 'edge' ? ' Waits for the end of a period, then sends the rest.' : ' Running.';
  const ago = Math.floor(traffic.age / 10) * 10;
  setText(state, what + (traffic.running ? waits : ago ? ` Sent more than ${ago} seconds ago.` : ' Sent.'));
}

async function refresh() {
  const message = await (await fetch('lanes')).json();
  draw(message);
  showState(message);
}

async function run() {
  for (;;) {
    if (!document.hidden) await refresh().catch(() => setText(state, 'The program does not answer.'));
    await new Promise(resolve => setTimeout(resolve, 200));
  }
}

run();

for (const button of document.querySelectorAll('button')) {
  button.addEventListener('click', () => fetch(`traffic/${button.dataset.kind}`, {method: 'POST'})
    .catch(() => setText(state, 'The program does not answer.')));
}
