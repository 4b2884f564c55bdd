// One pod: its history with its lines, its class and its score with the reasons, events, and the resize panel.

import { html, useState } from './ui.js';
import { bytes, clockTime, cores, count, inert, quantityBytes, quantityMilli, shortened } from './format.js';
import { COLUMN, seriesKey } from './state.js';
import { ViewHead, Table } from './table.js';
import { Inspector, Tank, kernelLines, usageText } from './hull.js';
import { MarkList } from './marks.js';
import { Chart } from './charts.js';
import { PodTable } from './fleet.js';
import { ResizePanel } from './resize.js';

export function PodList({ objects, state }) {
  const pods = [...objects.pods.values()].filter((pod) => !state.name || pod.node === state.name || !pod.node);
  return html`<${ViewHead} title="Pods" about="The pods of this node, and those without one. A pod opens with its history and the resize panel." /><section class="card"><${PodTable} pods=${pods} version=${objects.version} /></section>`;
}

export function PodView({ state, series, objects, rest, who, go, table, onTable }) {
  const [namespace, name] = rest;
  const pod = [...objects.pods.values()].find((each) => each.namespace === namespace && each.name === name);
  const [chosen, setChosen] = useState('');
  const vessel = pod && state.podVessel(pod.uid);
  const containers = vessel ? state.children(vessel.id) : [];
  const container = containers.find((each) => each.name === chosen) ?? containers[0];
  // A container that waits for its restart has no cgroup, but a history.
  const shown = container ?? (vessel && pod.containers[0] ? { level: 'container', uid: pod.uid, name: pod.containers[0].name, lines: [] } : null);
  const resized = container?.name ?? pod?.containers[0]?.name; // also while its cgroup is not there: what was typed is kept
  const marks = state.marks.filter((mark) => pod ? mark.uid === pod.uid : mark.namespace === namespace && mark.pod === name);
  const events = [...objects.events.values()].filter((each) => each.kind === 'Pod' && each.namespace === namespace && each.name === name).sort((a, b) => b.last - a.last);
  const head = html`<${ViewHead} title=${html`Pod <bdi>${shortened(name, 60)}</bdi>`} table=${table} onTable=${onTable}><span class="muted"><bdi>${shortened(namespace, 40)}</bdi></span></${ViewHead}>`;
  if (!pod) return html`${head}<p class="card empty">There is no pod <bdi>${inert(namespace)}/${inert(name)}</bdi> now.</p>${marks.length > 0 && html`<section class="card"><h2>What happened to it</h2><${MarkList} marks=${marks} /></section>`}`;
  const conditions = pod.conditions.filter((each) => each.type !== 'Ready' && each.status === 'True');
  const facts = html`<div class="chips">
    <span class=${`chip ${pod.phase === 'Running' ? 'good' : pod.phase === 'Failed' ? 'bad' : 'warn'}`}>${inert(pod.phase)}${pod.reason ? `: ${inert(pod.reason)}` : ''}</span>
    <span class="chip">${inert(pod.qosClass)}</span><span class="chip">priority ${pod.priority}</span>
    ${pod.resize && html`<span class="chip warn">resize ${inert(pod.resize)}</span>`}
    ${conditions.map((each) => html`<span class="chip warn" title=${inert(each.message ?? '')}>${inert(each.type)}${each.reason ? `: ${inert(each.reason)}` : ''}</span>`)}
    ${pod.containers.map((each) => each.restarts > 0 && html`<span class="chip warn"><bdi>${inert(each.name)}: ${count(each.restarts, 'restart')}${each.lastReason ? `, last ${inert(each.lastReason)}` : ''}</bdi></span>`)}
  </div>`;
  if (table) return html`${head}${facts}<section class="card"><${PointTable} series=${series} container=${shown} /></section><section class="card"><${EventTable} events=${events} /></section>${stepsOf(marks).length > 0 && shown && html`<section class="card"><${StepTable} steps=${stepsOf(marks)} name=${shown.name} /></section>`}`;
  return html`${head}${facts}
    ${pod.message && html`<p class="notice bad">${inert(pod.message)}</p>`}
    ${containers.length > 1 && html`<label class="small">Container <select value=${container.name} onChange=${(event) => setChosen(event.target.value)}>${containers.map((each) => html`<option>${inert(each.name)}</option>`)}</select></label>`}
    <div class="hull">
      <div class="levels">
        ${shown && html`<${ResizeSteps} marks=${marks} name=${shown.name} series=${series} />`}
        ${shown ? html`<${Charts} series=${series} container=${shown} state=${state} marks=${marks} />` : html`<section class="card"><p class="empty">The pod has no container on the chosen node.</p></section>`}
        <section class="card"><h2>What happened</h2><${MarkList} marks=${marks} /></section>
        <section class="card"><h2>Events</h2><${EventTable} events=${events} /></section>
      </div>
      <div class="levels">
        ${pod.phase === 'Running' && resized && html`<${ResizePanel} pod=${pod} name=${resized} who=${who} key=${`${pod.uid}/${resized}`} />`}
        ${vessel && html`<${Reasons} pod=${pod} vessel=${vessel} container=${container} state=${state} />`}
        ${vessel && html`<section class="card"><h2>Vessels</h2><div class="tanks">
          <${Tank} vessel=${vessel} row=${state.rows.get(vessel.id)} width=${152} height=${148} labels=${true} amounts=${true} />
          ${containers.map((each) => html`<${Tank} key=${each.id} vessel=${each} row=${state.rows.get(each.id)} width=${152} height=${148} labels=${true} amounts=${true} pressed=${each === container} onInspect=${() => setChosen(each.name)} />`)}
        </div></section>
        <${Inspector} vessel=${container ?? vessel} row=${state.rows.get((container ?? vessel).id)} />`}
      </div>
    </div>`;
}

// Class, score and places, each with its reason.
function Reasons({ pod, vessel, container, state }) {
  const eviction = state.orders?.eviction ?? [];
  const kill = state.orders?.oom ?? [];
  const place = eviction.findIndex((each) => each.id === vessel.id);
  const killed = container ? kill.findIndex((each) => each.id === container.id) : -1;
  return html`<section class="card"><h2>Class, score and place</h2>
    ${(vessel.remarks ?? []).map((text) => html`<p>${inert(text)}</p>`)}
    ${container?.oomScoreAdj != null && html`<p><strong>oom_score_adj ${String(container.oomScoreAdj).replace('-', '−')}</strong><br /><span class="mono formula small">${inert(container.oomFormula ?? '')}</span></p>`}
    ${place >= 0 && html`<p>Eviction: place <strong>${place + 1} of ${eviction.length}</strong>${eviction[place].exempt ? ', exempt' : eviction[place].key ? `, before the next because: ${inert(eviction[place].key)}` : ''}</p>`}
    ${killed >= 0 && html`<p>OOM of the machine: place <strong>${killed + 1} of ${kill.length}</strong> with ${kill[killed].points} points</p>`}
    <p><a href="#/next">Eviction and OOM order</a></p></section>`;
}

const AMOUNTS = ['cpu request', 'cpu limit', 'memory request', 'memory limit'];
const PARTS = [['spec', 'requested', 'high', [6, 4]], ['allocated', 'allocated', 'min', [2, 3]], ['actual', 'in effect', 'accent', undefined]];

function stepsOf(marks) {
  return marks.filter((mark) => mark.step).sort((a, b) => a.step.number - b.step.number);
}

function stepAmount(step, part, name, index) {
  const text = step[part][name]?.[index] ?? '';
  return text === '' ? null : index < 2 ? quantityMilli(text) : quantityBytes(text);
}

// The resizes of document 003 on the time axis: what is requested, allocated and in effect after each step T0, T1, ….
function ResizeSteps({ marks, name, series }) {
  const [chosen, setChosen] = useState(null);
  const steps = stepsOf(marks);
  if (!steps.length) return null;
  const changed = AMOUNTS.map((_, index) => index).filter((index) => new Set(steps.flatMap(({ step }) => PARTS.map(([part]) => stepAmount(step, part, name, index)).filter((each) => each !== null))).size > 1);
  const index = changed.includes(chosen) ? chosen : (changed.at(-1) ?? 0);
  // From its creation, or from just before the first resize of an old pod.
  const first = steps.find(({ step }) => step.number > 2)?.at ?? steps[0].at;
  const begin = first - steps[0].at < 120 ? steps[0].at : first - 15;
  const times = [...new Set([...series.times(), ...steps.map((each) => each.at)])].filter((at) => at >= begin).sort((a, b) => a - b);
  const values = (part) => {
    let place = -1;
    return times.map((at) => {
      while (place + 1 < steps.length && steps[place + 1].at <= at) place += 1;
      return place < 0 ? null : stepAmount(steps[place].step, part, name, index);
    });
  };
  const lines = PARTS.map(([part, label, tone, dash]) => [label, values(part), tone, { dash, stepped: true, thin: part !== 'actual' }]).filter(([, column]) => column.some((each) => each !== null));
  // A request that the node could never grant would make everything else flat.
  const most = 3 * Math.max(0, ...['allocated', 'actual'].flatMap((part) => values(part)).filter((each) => each !== null));
  return html`<section class="card" data-resize-steps=${name}><h2>Resizes <span class="muted small">${AMOUNTS[index]}</span>
      ${changed.length > 1 && html` <select aria-label="Amount" value=${index} onChange=${(event) => setChosen(Number(event.target.value))}>${changed.map((each) => html`<option value=${each}>${AMOUNTS[each]}</option>`)}</select>`}</h2>
    <${Chart} height=${170} label=${`Resizes over time: ${AMOUNTS[index]} requested, allocated and in effect`} times=${times} lines=${lines} unit=${index < 2 ? 'cores' : 'bytes'} marks=${steps} most=${most || undefined} />
    <${StepTable} steps=${steps} name=${name} index=${index} />
  </section>`;
}

function StepTable({ steps, name, index }) {
  const shown = (step, part) => (step[part][name] ?? []).map((text, place) => (text && (index === undefined || index === place) ? `${index === undefined ? `${AMOUNTS[place]} ` : ''}${text}` : '')).filter(Boolean).join(', ') || '–';
  return html`<${Table} caption="Steps of the resizes" rows=${steps.map((mark) => ({ id: `T${mark.step.number}`, mark, step: mark.step }))} columns=${[
    ['Step', ({ step }) => `T${step.number}`],
    ['When', ({ mark }) => clockTime(mark.at)],
    ['What happened', ({ mark }) => mark.text, { wide: true }],
    ['Requested', ({ step }) => shown(step, 'spec'), { number: true, name: 'spec' }],
    ['Allocated', ({ step }) => shown(step, 'allocated'), { number: true, name: 'allocated' }],
    ['In effect', ({ step }) => shown(step, 'actual'), { number: true, name: 'actual' }],
    ['State', ({ step }) => step.state || '–', { name: 'state' }],
  ]} />`;
}

function Charts({ series, container, state, marks }) {
  const id = seriesKey(container);
  const times = series.times();
  const lines = kernelLines(container, state.rows.get(container.id)).filter((line) => !line.of);
  const row = state.rows.get(container.id);
  const memory = [
    ['memory', series.column(id, 'usage'), 'anon', { fill: true }],
    ['anonymous', series.column(id, 'anon'), 'kernel'],
    ...lines.map((line) => [line.name, series.column(id, line.name).map((value) => value ?? line.at), line.name, { dash: line.name === 'low' ? [6, 3] : undefined, thin: true }]),
  ];
  const stalls = series.column(id, 'memoryStall').some((each) => each !== null);
  const cpuLines = [['CPU', series.column(id, 'cpuMilli'), 'share', { fill: true }]];
  if (row && row[COLUMN.quotaMilli] > 0) cpuLines.push(['limit', series.column(id, 'quotaMilli'), 'max', { thin: true }]);
  if (container.cpu?.worstCaseMilli > 0) cpuLines.push(['guaranteed by weight', times.map(() => container.cpu.worstCaseMilli), 'min', { dash: [4, 4], thin: true }]);
  return html`
    <section class="card"><h2>Memory <span class="muted small">${usageText(container, row)}</span></h2><${Chart} label="Memory over time, with its lines" times=${times} lines=${memory} unit="bytes" marks=${marks} /></section>
    <section class="card"><h2>CPU <span class="muted small">${cores(row ? row[COLUMN.cpuMilli] : -1)} now</span></h2><${Chart} label="CPU over time, against its limit" times=${times} lines=${cpuLines} unit="cores" marks=${marks} /></section>
    <section class="card"><h2>Throttled${stalls ? ' and stalled' : ''}</h2><${Chart} height=${150} label="Throttled time per second" times=${times} unit="ms" marks=${marks}
      lines=${[['throttled', series.rate(id, 'throttledUs').map((us) => (us === null ? null : us / 1000)), 'high', { fill: true }], ...(stalls ? [['memory stall', series.column(id, 'memoryStall').map((each) => (each === null ? null : each / 10)), 'max', {}]] : [])]} /></section>`;
}

function PointTable({ series, container }) {
  if (!container) return html`<p class="empty">The pod has no running container on the chosen node.</p>`;
  const rows = series.rows(seriesKey(container)).map((row, place) => ({ id: String(series.at[place]), at: series.at[place], row })).filter((each) => each.row).slice(-120).reverse();
  const figure = (name) => (each) => bytes(each.row[COLUMN[name]]);
  const number = { number: true };
  return html`<${Table} caption=${`History of container ${inert(container.name)}, newest first`} empty="No readings yet." rows=${rows} columns=${[
    ['Time', (each) => clockTime(each.at)],
    ['Memory', figure('usage'), number], ['Anonymous', figure('anon'), number], ['max', figure('max'), number], ['high', figure('high'), number],
    ['CPU', (each) => cores(each.row[COLUMN.cpuMilli]), number], ['CPU limit', (each) => cores(each.row[COLUMN.quotaMilli]), number],
    ['Throttled periods', (each) => String(Math.max(0, each.row[COLUMN.throttledPeriods])), number], ['OOM kills', (each) => String(Math.max(0, each.row[COLUMN.oomKills])), number],
  ]} />`;
}

export function EventTable({ events }) {
  return html`<${Table} caption="Events, newest first" empty="No events." rows=${events.map((each) => ({ id: each.key, ...each }))} columns=${[
    ['Reason', (each) => html`<span class=${each.type === 'Warning' ? 'bad' : ''}>${inert(each.reason)}</span>`],
    ['When', (each) => clockTime(each.last)],
    ['Count', (each) => String(each.count), { number: true }],
    ['Message', (each) => each.message],
  ]} />`;
}
