'use strict';

const svgNames = 'http://www.w3.org/2000/svg';
const lanes = document.getElementById('lanes');
const state = document.getElementById('state');

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

function makeLane(given) {
  const section = make('section', lanes);
  section.className = 'lane';
  const head = make('div', section);
  make('h2', head, given.name.replace('-', ' '));
  const most = make('span', head);
  const drawing = shape('svg', section, {viewBox: '0 0 1000 100', preserveAspectRatio: 'none', 'aria-hidden': 'true'});
  const width = 1000 * given.window / given.history;
  shape('rect', drawing, {x: 1000 - width, y: 0, width, height: 100});
  return {most, allowed: shape('path', drawing, {class: 'allowed'}), denied: shape('path', drawing, {class: 'denied'})};
}

let shown = null;

async function refresh() {
  const answer = await fetch('lanes');
  const given = await answer.json();
  shown ??= given.map(makeLane);
  given.forEach((lane, i) => {
    const x = age => (1000 * (1 - age / lane.history)).toFixed(1);
    shown[i].allowed.setAttribute('d', lane.allowed.map(age => `M${x(age)} 10V100`).join(''));
    shown[i].denied.setAttribute('d', lane.denied.map(age => `M${x(age)} 75V100`).join(''));
    shown[i].most.textContent = `${lane.most} of ${lane.quota} in one window`;
    shown[i].most.className = lane.most > lane.quota ? 'over' : '';
  });
}

async function run() {
  for (;;) {
    if (!document.hidden) await refresh().catch(() => { state.textContent = 'The program does not answer.'; });
    await new Promise(resolve => setTimeout(resolve, 200));
  }
}

run();

for (const button of document.querySelectorAll('button')) {
  button.addEventListener('click', async () => {
    await fetch(`traffic/${button.dataset.kind}`, {method: 'POST'});
    const name = button.firstChild.textContent.trim();
    state.textContent = button.dataset.kind === 'edge' ? `${name}: waits for the end of a period of 10 seconds.` : `${name}.`;
  });
}
