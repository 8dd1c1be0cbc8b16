'use strict';

const seconds = 300; // of history
const averaged = 10; // seconds, so that numbers can be read
const byId = id => document.getElementById(id);

// fill gives an element attributes and children, which are elements or texts. Texts are never read as HTML.
function fill(e, attributes = {}, ...children) {
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  e.append(...children);
  return e;
}

const element = (name, ...content) => fill(document.createElement(name), ...content);
const svg = (name, ...content) => fill(document.createElementNS('http://www.w3.org/2000/svg', name), ...content);

function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

const plural = (n, one, many) => `${n.toLocaleString('en')} ${n === 1 ? one : many}`;

function duration(s) {
  if (s < 1) return `${Math.ceil(s * 1000)} ms`;
  if (s < 10) return `${+s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} days`;
}

// wait has whole seconds, which go down one by one.
const wait = s => duration(s < 1 ? s : Math.ceil(s));

// rate has one decimal where that makes a difference.
const rate = n => (n < 10 ? Math.ceil(n * 10) / 10 : Math.round(n)).toLocaleString('en');

const size = bytes => bytes < 1e6 ? `${Math.ceil(bytes / 1e3)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;

// showRows shows items in the rows of a table, in their order. shown has what was made for each, by the names of items,
// with its row; update shows an item's present values in it. A row that has the focus stays.
function showRows(table, shown, items, nameOf, make, update) {
  const body = byId(table).tBodies[0];
  const names = new Set(items.map(nameOf));
  const focused = document.activeElement;
  for (const [name, {row}] of shown) {
    if (!names.has(name) && !row.contains(focused)) {
      row.remove();
      shown.delete(name);
    }
  }
  items.forEach((item, i) => {
    const name = nameOf(item);
    if (!shown.has(name)) shown.set(name, make(item));
    const made = shown.get(name);
    update(made, item);
    if (body.rows[i] !== made.row) body.insertBefore(made.row, body.rows[i] || null);
  });
  if (focused !== document.activeElement && body.contains(focused)) focused.focus({preventScroll: true});
  byId(`no-${table}`).hidden = items.length > 0;
}

// Policies.

const policies = new Map(); // by name: history and what shows it

const columns = ['Admitted', 'Denied', 'Near limit', 'Degraded']; // as in a second of history

function policyRow({name}) {
  const cells = columns.map(label => element('td', {class: 'number', 'data-name': label}));
  const history = {
    admitted: svg('path', {class: 'admitted'}),
    denied: svg('path', {class: 'denied'}),
  };
  const limits = element('small');
  const total = element('small');
  const row = element('tr', {},
    element('th', {scope: 'row'}, name, limits),
    element('td', {class: 'wide'},
      svg('svg', {class: 'history', viewBox: `0 0 ${seconds} 40`, preserveAspectRatio: 'none', 'aria-hidden': 'true'},
        history.admitted, history.denied),
      total),
    ...cells);
  return {row, cells, history, limits, total, samples: []};
}

function showPolicies(message) {
  showRows('policies', policies, message.policies, p => p.name, policyRow, (p, given) => {
    if (given.history.length === seconds) p.samples = [];
    p.samples.push(...given.history);
    while (p.samples.length < seconds) p.samples.unshift([0, 0, 0, 0, 0]);
    p.samples.splice(0, p.samples.length - seconds);
    setText(p.limits, given.limits || '');
    const sum = (samples, n) => samples.reduce((sum, s) => sum + s[n], 0);
    const latest = p.samples.slice(-averaged);
    p.cells.forEach((cell, n) => {
      const requests = sum(latest, n);
      setText(cell, rate(requests / averaged));
      cell.classList.toggle('zero', requests === 0);
      cell.classList.toggle('bad', columns[n] === 'Degraded' && requests > 0);
    });
    const text = n => sum(p.samples, n).toLocaleString('en');
    setText(p.total, `${text(0)} admitted, ${text(1)} denied, at most ${drawHistory(p).toLocaleString('en')} in a second`);
  });
  byId('others').hidden = !message.others;
  setText(byId('others'), `${plural(message.others, 'policy', 'policies')} with fewer requests not shown.`);
}

// drawHistory draws what was admitted from below, and what was denied on top of it. It returns how many requests the
// whole height is.
function drawHistory(p) {
  const most = Math.max(...p.samples.map(s => s[0] + s[1]));
  let admitted = '', denied = '';
  p.samples.forEach((s, x) => {
    const a = 40 * s[0] / most, d = 40 * s[1] / most;
    if (a > 0) admitted += `M${x} 40v${-a}h1v${a}z`;
    if (d > 0) denied += `M${x} ${40 - a}v${-d}h1v${d}z`;
  });
  p.history.admitted.setAttribute('d', admitted);
  p.history.denied.setAttribute('d', denied);
  return most;
}

// showList replaces the rows of a list if they have changed, and keeps them and their focus otherwise.
function showList(list, texts, make) {
  const key = JSON.stringify(texts);
  if (list.dataset.shown === key) return;
  list.dataset.shown = key;
  list.replaceChildren(...texts.map(make));
}

function showWrong(message) {
  const wrong = message.policies.flatMap(p => (p.wrong || []).map(w => `${p.name}: ${w.count.toLocaleString('en')} ${w.what}`));
  for (const s of message.stores) {
    if (s.Lost) wrong.push(`${s.Policy}: ${plural(s.Lost, 'unit', 'units')} that cannot be replayed to the store`);
    if (s.Breaker && s.Breaker !== 'closed') wrong.push(`${s.Policy}: the store does not answer`);
    if (s.Shared) wrong.push(`${s.Policy}: ${plural(s.Shared, 'request', 'requests')} whose keys share a log, because the store is full`);
  }
  byId('wrong').hidden = wrong.length === 0;
  showList(byId('wrong').querySelector('ul'), wrong, text => element('li', {}, text));
}

function showStores(message) {
  const about = s => s.MaxKeys
    ? [`in memory, ${s.Keys.toLocaleString('en')} of ${s.MaxKeys.toLocaleString('en')} keys`, size(s.Bytes)]
    : s.Breaker
      ? [`breaker ${s.Breaker}`, plural(s.Outages, 'outage', 'outages'), plural(s.Failures, 'failed call', 'failed calls'),
        `${plural(s.Denials, 'denial', 'denials')} cached`, `${s.Backlog.toLocaleString('en')} to be replayed`,
        `${s.Replayed.toLocaleString('en')} replayed`]
      : ['as above'];
  const rows = message.stores.map(s => [s.Policy, about(s).concat(s.InFlight ? [`${s.InFlight} in flight`] : []).join(', ')]);
  byId('stores').hidden = rows.length === 0;
  showList(byId('stores').querySelector('tbody'), rows, ([name, text]) =>
    element('tr', {}, element('th', {scope: 'row'}, name), element('td', {class: 'wide'}, text)));
}

// Keys.

const keyRows = new Map(); // by id

function keyRow(k) {
  const requests = element('td', {class: 'number', 'data-name': 'Requests'});
  const denied = element('td', {class: 'number', 'data-name': 'Denied'});
  const button = element('button', {type: 'button', 'aria-label': `Show the window of ${k.name || k.id}, ${k.policy}`}, 'Window');
  button.addEventListener('click', () => look({id: k.id}));
  const row = element('tr', {},
    element('th', {scope: 'row', class: 'key'}, k.name === '' ? '(all)' : k.name || k.id),
    element('td', {'data-name': 'Policy'}, k.policy), requests, denied, element('td', {}, button));
  return {row, requests, denied};
}

function showKeys(message) {
  showRows('keys', keyRows, message.hot, k => k.id, keyRow,
    (k, given) => {
      setText(k.requests, given.requests.toLocaleString('en'));
      setText(k.denied, given.denied.toLocaleString('en'));
      k.denied.classList.toggle('zero', given.denied === 0);
    });
}

let mayAct = false;

function showActions(message) {
  if (message.actions === undefined) return;
  mayAct = message.actions;
  const names = message.find || [];
  byId('find').hidden = !mayAct || names.length === 0;
  showList(byId('find').policy, names, name => element('option', {}, name));
}

byId('find').addEventListener('submit', e => {
  e.preventDefault();
  look({policy: e.target.policy.value, key: e.target.key.value});
});

// The window of one key.

let asked = null; // what the window is of
let shownLimits = []; // what is drawn, with when it was fetched

function post(path, question) {
  return fetch(path, {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(question)});
}

function look(question) {
  asked = question;
  shownLimits = [];
  byId('limits').replaceChildren();
  setText(byId('window-error'), '');
  setText(byId('window-title'), 'Window');
  setText(byId('done'), '');
  byId('window').hidden = false;
  byId('window-title').focus();
  refresh();
}

byId('close').addEventListener('click', () => {
  asked = null;
  byId('window').hidden = true;
});

let refreshing = false;

async function refresh() {
  const question = asked;
  if (!question || refreshing || document.hidden) return;
  refreshing = true;
  try {
    const response = await post('window', question);
    const answer = response.ok ? await response.json() : await response.text();
    if (question !== asked) return;
    if (response.ok) showWindow(answer);
    else setText(byId('window-error'), answer);
  } catch {
    setText(byId('window-error'), 'The program does not answer.');
  } finally {
    refreshing = false;
    if (question !== asked) refresh();
  }
}

// units returns the quota of a limit in words.
const units = ({quota, unit}) => unit === 'requests' ? plural(quota, 'request', 'requests') : `${quota.toLocaleString('en')} ${unit}`;

function limitPanel(limit, i) {
  const text = element('p', {class: 'text'});
  const drawing = svg('svg', {viewBox: '0 0 1000 100', preserveAspectRatio: 'none', 'aria-hidden': 'true'});
  const axis = element('div', {class: 'axis', 'aria-hidden': 'true'},
    element('span', {}, `${duration(limit.window)} ago`), element('span', {}, 'now'));
  const heading = element('header', {}, element('h3', {}, limit.name));
  if (mayAct) heading.append(resetButton(limit, i));
  const key = element('p', {class: 'hint'}, `${limit.algorithm} of `, element('span', {class: 'key'}, limit.key || 'all requests'));
  const panel = element('div', {class: 'limit'}, heading, key, text);
  const legend = element('p', {class: 'hint', 'aria-hidden': 'true'},
    `Dashed: the quota, ${units(limit)}. Line: what was used since then. Marks: requests.`);
  if (limit.algorithm === 'sliding log') panel.append(drawing, axis, legend);
  return {panel, text, drawing, limit, at: 0};
}

// sureButton asks once more before it acts. The second click of a double-click is no answer.
function sureButton(attributes, text, question, done, explain, act) {
  const button = element('button', {type: 'button', ...attributes}, text);
  let sure = 0, since = 0;
  button.addEventListener('click', () => {
    if (sure && performance.now() - since < 400) return;
    if (!sure) {
      since = performance.now();
      button.textContent = question;
      setText(byId(done), explain);
      sure = setTimeout(() => {
        sure = 0;
        button.textContent = text;
      }, 5000);
      return;
    }
    clearTimeout(sure);
    sure = 0;
    button.textContent = text;
    act();
  });
  return button;
}

// act sends an action, and says below which id whether it was done.
async function act(path, question, error, done, text) {
  const response = await post(path, question).catch(() => null);
  setText(byId(error), response?.ok ? '' : response ? (await response.text()).trim() : 'The program does not answer.');
  setText(byId(done), response?.ok ? text : '');
  return response?.ok;
}

function resetButton(limit, i) {
  return sureButton({}, 'Reset', 'Delete this log?', 'done', `Press again to delete the log of ${limit.name}.`, async () => {
    await act('reset', {...asked, limit: i, name: limit.name, of: limit.key}, 'window-error', 'done',
      `The log of ${limit.name} was deleted.`);
    refresh();
  });
}

function showWindow(answer) {
  setText(byId('window-error'), '');
  setText(byId('window-title'), `Window of ${answer.name || 'all requests'}, ${answer.policy}`);
  byId('banned').hidden = !answer.banned;
  byId('denied').hidden = !answer.denied;
  const names = limits => JSON.stringify(limits.map(l => [l.name, l.key, l.algorithm, l.quota, l.unit, l.window]));
  if (names(shownLimits.map(s => s.limit)) !== names(answer.limits) || shownLimits.length === 0) {
    shownLimits = answer.limits.map(limitPanel);
    byId('limits').replaceChildren(...shownLimits.map(s => s.panel));
    if (answer.limits.length === 0) byId('limits').textContent = 'No limit applies to this key.';
  }
  answer.limits.forEach((limit, i) => {
    const s = shownLimits[i];
    s.limit = limit;
    s.at = performance.now();
    let text = `${limit.used.toLocaleString('en')} of ${units(limit)} used, ` +
      `${limit.remaining.toLocaleString('en')} left.`;
    if (limit.reset > 0) text += ` ${limit.remaining > 0 ? 'More room' : 'Room'} comes in ${wait(limit.reset)}.`;
    setText(s.text, text);
    draw(s);
  });
}

// draw draws a log: each entry as a mark that moves to the left and out of the window, and above it how many units are
// in the window since then. Where that line meets the left edge it shows what is used now, below the line of the quota.
function draw(s) {
  const {limit} = s;
  const since = (performance.now() - s.at) / 1000;
  const marks = limit.marks.map(([age, cost]) => [age + since, cost]).filter(([age]) => age < limit.window);
  const most = Math.max(limit.quota, limit.used) * 1.1;
  const x = age => 1000 * (1 - Math.max(0, age) / limit.window);
  const y = units => 88 - 84 * units / most;
  let units = 0, used = `M1000 ${y(0)}`, entries = '';
  for (const [age, cost] of marks.toReversed()) {
    used += `H${x(age).toFixed(1)}`;
    units += cost;
    used += `V${y(units).toFixed(1)}`;
    entries += `M${x(age).toFixed(1)} 92V100`;
  }
  const quota = y(limit.quota).toFixed(1);
  s.drawing.replaceChildren(
    svg('path', {class: 'quota', d: `M0 ${quota}H1000`}),
    svg('path', {class: 'used', d: `${used}H0`}),
    svg('path', {class: 'entry', d: entries}));
}

// Overrides.

const pause = 10000; // between looks at the overrides, in ms
let looked = -pause;

async function showOverrides() {
  if (performance.now() - looked < pause || document.hidden) return;
  looked = performance.now();
  const response = await post('overrides', {}).catch(() => null);
  if (!response?.ok) return;
  const {keys, overrides, others, failed, versions} = await response.json();
  byId('versions').hidden = versions.length === 0;
  showList(byId('versions').querySelector('tbody'), versions, versionRow);
  byId('overrides').hidden = keys.length === 0;
  byId('no-overrides').hidden = overrides.length > 0;
  byId('other-overrides').hidden = !others && !failed;
  setText(byId('other-overrides'), (others ? `${plural(others, 'override', 'overrides')} that end later not shown. ` : '') +
    (failed ? `The overrides of ${failed.join(', ')} cannot be read now.` : ''));
  const form = byId('override');
  form.hidden = !mayAct;
  showList(form.of, keys, k => element('option', {value: JSON.stringify(k)}, k.name));
  const body = byId('overrides').querySelector('tbody');
  if (!body.contains(document.activeElement)) showList(body, overrides.map(o => ({...o, mayAct})), overrideRow);
}

// timeOf is an instant in the zone of the page, to the minute.
const timeOf = at => element('time', {datetime: at}, new Date(at).toLocaleString('sv').slice(0, 16));

function versionRow(v) {
  return element('tr', {},
    element('th', {scope: 'row', class: 'key'}, v.file),
    element('td', {'data-name': 'Version'}, element('code', {title: v.hash}, v.hash.slice(0, 12))),
    element('td', {'data-name': 'Loaded'}, timeOf(v.loaded)),
    element('td', {'data-name': 'Processes', class: 'number'}, v.processes.toLocaleString('en')));
}

function overrideRow(o) {
  const row = element('tr', {},
    element('th', {scope: 'row', class: 'key'}, o.key || '(all)'),
    element('td', {'data-name': 'Policy'}, o.policy),
    element('td', {'data-name': 'Override'}, o.what),
    element('td', {'data-name': 'Until'}, timeOf(o.until)),
    element('td', {'data-name': 'Note', class: 'note'}, o.note || ''));
  if (o.mayAct) {
    const label = `Remove the override of ${o.key || 'all'}, ${o.policy}`;
    row.append(element('td', {}, sureButton({'aria-label': label}, 'Remove', 'Remove it?', 'override-done',
      'Press again to remove the override.', async () => {
        byId('overrides-title').focus();
        await changeOverride('remove-override', {policy: o.of, id: o.id}, 'The override was removed.');
      })));
  } else row.append(element('td'));
  return row;
}

async function changeOverride(path, question, text) {
  const done = await act(path, question, 'override-error', 'override-done', text);
  looked = -pause;
  await showOverrides();
  return done;
}

const showKind = () => byId('override').limits.disabled = byId('override').kind.value !== 'limits';

byId('override').kind.addEventListener('change', showKind);

// instant returns a length of time as it is, and a date such as 2026-12-24 or 2026-12-24 18:00, which is one of the
// browser's zone, as an instant.
function instant(text) {
  const date = text.trim().match(/^(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d))?$/);
  const at = date && new Date(`${date[1]}T${date[2] || '00:00'}`);
  return at && !isNaN(at) ? at.toISOString() : text;
}

byId('override').addEventListener('submit', async e => {
  e.preventDefault();
  const form = e.target;
  const question = {...JSON.parse(form.of.value), key: form.key.value, kind: form.kind.value, limits: form.limits.value,
    for: instant(form.for.value), note: form.note.value};
  if (await changeOverride('override', question, 'The override is in force.')) {
    form.reset();
    showKind();
  }
});

const still = matchMedia('(prefers-reduced-motion: reduce)');
let drawn = 0;

function move(now) {
  if (asked && !still.matches && now - drawn > 50) {
    drawn = now;
    shownLimits.forEach(draw);
  }
  requestAnimationFrame(move);
}

requestAnimationFrame(move);

// Events.

let events = null;
let silent = 0; // a stream ends each minute, and the next one begins a second later

function listen() {
  events = new EventSource('events');
  events.onmessage = e => {
    const message = JSON.parse(e.data);
    clearTimeout(silent);
    silent = 0;
    setText(byId('state'), 'Live');
    showPolicies(message);
    showWrong(message);
    showKeys(message);
    showStores(message);
    showActions(message);
    showOverrides();
    refresh();
  };
  events.onerror = () => {
    if (events.readyState === EventSource.CLOSED) { // after an answer with another status, such as that of a proxy
      setTimeout(() => {
        if (!document.hidden && events.readyState === EventSource.CLOSED) listen();
      }, 5000);
    }
    if (!silent) silent = setTimeout(() => setText(byId('state'), 'The program does not answer. Connecting…'), 4000);
  };
}

// A page that nobody sees gives its connection back, of which browsers have few for one host.
document.addEventListener('visibilitychange', () => {
  if (document.hidden) events?.close();
  else if (!events || events.readyState === EventSource.CLOSED) listen();
});

if (!document.hidden) listen();
