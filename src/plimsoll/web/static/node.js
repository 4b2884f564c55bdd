// The node: how its capacity is split, how far each signal is from its threshold, stalls and conditions.

import { html } from './ui.js';
import { bytes, cores, inert, percent, seconds, signedBytes } from './format.js';
import { Table, ViewHead } from './table.js';
import { MarkList } from './marks.js';

const SIGNAL_WORDS = {
  'memory.available': 'memory of the node',
  'allocatableMemory.available': 'memory of all pods',
  'nodefs.available': 'disk of the node',
  'nodefs.inodesFree': 'inodes of the node',
  'imagefs.available': 'disk of images',
  'imagefs.inodesFree': 'inodes of images',
  'containerfs.available': 'disk of containers',
  'containerfs.inodesFree': 'inodes of containers',
  'pid.available': 'process ids',
};

export function amountOf(signal, amount) {
  return /inodesFree$|^pid\./.test(signal) ? (amount < 0 ? '−' : '') + Math.abs(Math.round(amount)).toLocaleString('en') : signedBytes(amount);
}

function Split({ split, used, cache, text, resource }) {
  const whole = split.capacity || 1;
  const width = (amount) => ({ width: `${Math.max(0, Math.min(100, (100 * amount) / whole))}%` });
  const active = Math.max(0, used - cache);
  const free = Math.max(0, split.allocatable - used);
  const label = `${resource}: ${text(used)} used of ${text(split.allocatable)} allocatable, ${text(split.allocated)} allocated, capacity ${text(split.capacity)}`;
  return html`<div>
    <div class="split" role="img" aria-label=${label}>
      <div class="used" style=${width(active)}></div>
      ${cache > 0 && html`<div class="cache" style=${width(cache)}></div>`}
      <div class="free" style=${width(free)}></div>
      ${split.eviction > 0 && html`<div class="eviction" style=${width(split.eviction)}></div>`}
      ${split.kubeReserved > 0 && html`<div class="kube" style=${width(split.kubeReserved)}></div>`}
      ${split.systemReserved > 0 && html`<div class="system" style=${width(split.systemReserved)}></div>`}
      <div class="mark allocated" style=${{ left: `${Math.min(99.5, (100 * split.allocated) / whole)}%` }}></div>
    </div>
    <div class="legend">
      <span><i class="swatch used"></i>used ${text(active)}</span>
      ${cache > 0 && html`<span><i class="swatch cache"></i>reclaimable cache ${text(cache)}</span>`}
      <span><i class="swatch free"></i>free ${text(free)}</span>
      <span><i class="swatch line allocated"></i>allocated (requests) ${text(split.allocated)}</span>
      ${split.eviction > 0 && html`<span><i class="swatch eviction"></i>eviction threshold ${text(split.eviction)}</span>`}
      ${split.kubeReserved > 0 && html`<span><i class="swatch kube"></i>kube-reserved ${text(split.kubeReserved)}</span>`}
      ${split.systemReserved > 0 && html`<span><i class="swatch system"></i>system-reserved ${text(split.systemReserved)}</span>`}
    </div>
  </div>`;
}

export function Fact({ label, value, note }) {
  return html`<div class="fact"><div class="value">${value}</div><div class="label">${label}</div>${note && html`<div class="label">${note}</div>`}</div>`;
}

export function NodeView({ state, table, onTable, children }) {
  const node = state.node;
  const head = html`<${ViewHead} title=${html`Node <bdi>${inert(state.name)}</bdi>`} table=${table} onTable=${onTable} />`;
  if (!node || !node.memory) return html`${head}<p class="card empty">${state.problem ? inert(state.problem) : 'Waiting for the first reading of the node …'}</p>`;
  const used = node.used ?? {};
  const cache = Math.max(0, (used.usage ?? 0) - (used.workingSet ?? 0));
  if (table) return html`${head}<section class="card"><${NodeTable} node=${node} /></section><section class="card"><${SignalTable} signals=${node.signals} /></section>`;
  return html`${head}
    ${state.problem && html`<p class="notice bad">${inert(state.problem)}</p>`}
    <div class="chips">
      ${node.conditions.length ? node.conditions.map((name) => html`<span class="chip bad">${inert(name)}</span>`) : html`<span class="chip good">no pressure</span>`}
      <span class="chip">profile ${inert(node.profile)}</span><span class="chip">cgroup v${node.cgroupVersion}</span><span class="chip">${inert(node.driver)}</span>
      ${node.simulated && html`<span class="chip warn">limits are simulated</span>`}
    </div>
    <section class="card"><h2>Memory</h2><${Split} split=${node.memory} used=${used.usage ?? 0} cache=${cache} text=${bytes} resource="Memory" />
      <div class="facts">
        <${Fact} label="capacity" value=${bytes(node.memory.capacity)} />
        <${Fact} label="allocatable" value=${bytes(node.memory.allocatable)} note=${html`<span class="mono formula">${inert(node.steps?.memory ?? '')}</span>`} />
        <${Fact} label="allocated to pods" value=${bytes(node.memory.allocated)} note=${percent(node.memory.allocated, node.memory.allocatable)} />
        <${Fact} label="used by pods" value=${bytes(used.usage ?? -1)} note=${`${bytes(used.workingSet ?? -1)} of it not reclaimable`} />
        <${Fact} label="sum of limits" value=${bytes(node.memory.limits)} note=${percent(node.memory.limits, node.memory.allocatable)} />
      </div>
    </section>
    <section class="card"><h2>CPU</h2><${Split} split=${node.cpu} used=${used.cpuMilli ?? 0} cache=${0} text=${(milli) => `${cores(milli)} CPU`} resource="CPU" />
      <div class="facts">
        <${Fact} label="capacity" value=${`${cores(node.cpu.capacity)} CPU`} />
        <${Fact} label="allocated to pods" value=${`${cores(node.cpu.allocated)} CPU`} note=${percent(node.cpu.allocated, node.cpu.allocatable)} />
        <${Fact} label="used by pods" value=${`${cores(used.cpuMilli ?? -1)} CPU`} />
        <${Fact} label="pods" value=${`${node.pods} of ${node.maxPods}`} note=${Object.entries(node.classes ?? {}).map(([name, n]) => `${n} ${name}`).join(', ')} />
      </div>
    </section>
    <div class="cards">
      <section class="card"><h2>Distance to eviction</h2><${Signals} signals=${node.signals} /></section>
      <section class="card"><h2>Stalls of the machine (PSI)</h2><${Stalls} pressure=${node.pressure} /></section>
      <section class="card"><h2>Closest to a line</h2><${Closest} closest=${node.closest ?? []} /></section>
      <section class="card"><h2>What happened</h2><${MarkList} marks=${state.marks} /></section>
    </div>
    ${children}`;
}

function Signals({ signals }) {
  if (!signals.length) return html`<p class="empty">This node has no eviction thresholds.</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Signals"><table>
    <thead><tr><th scope="col">Signal</th><th scope="col" class="num">Available</th><th scope="col" class="num">Distance</th><th scope="col" class="num">Reached in</th></tr></thead>
    <tbody>${distinct(signals).map((each) => {
      const distance = each.available - each.threshold;
      const level = each.met || distance <= 0 ? 'bad' : (each.seconds ?? -1) >= 0 && each.seconds < 60 ? 'warn' : '';
      return html`<tr data-signal=${each.signal}><th scope="row">${inert(SIGNAL_WORDS[each.signal] ?? each.signal)}<div class="muted small mono">${inert(each.signal)}${each.graceSeconds ? `, soft ${seconds(each.graceSeconds)}` : ''}${each.also.length ? `, ${each.also.join(', ')}` : ''}</div></th>
        <td class="num">${amountOf(each.signal, each.available)}</td>
        <td class=${`num ${level}`}>${each.met ? 'met' : amountOf(each.signal, distance)}</td>
        <td class=${`num ${level}`}>${(each.seconds ?? -1) < 0 ? 'not falling' : each.seconds > 86400 ? '> 1 d' : seconds(each.seconds)}</td></tr>`;
    })}</tbody></table></div>`;
}

// Signals of one file system have the same figures: the first stands for all.
function distinct(signals) {
  const seen = new Map();
  for (const each of signals) {
    const key = `${each.available} ${each.threshold} ${/inodes/.test(each.signal)} ${each.graceSeconds}`;
    if (seen.has(key)) seen.get(key).also.push(each.signal);
    else seen.set(key, { ...each, also: [] });
  }
  return [...seen.values()];
}

function Stalls({ pressure }) {
  const found = Object.entries(pressure ?? {});
  if (!found.length) return html`<p class="empty">Not shown: the node is a part of this machine, or the kernel has no PSI.</p>`;
  return html`<table><thead><tr><th scope="col">Resource</th><th scope="col" class="num">10 s</th><th scope="col" class="num">60 s</th><th scope="col" class="num">300 s</th></tr></thead>
    <tbody>${found.flatMap(([name, kinds]) => Object.entries(kinds).map(([kind, averages]) => html`<tr><th scope="row">${name} <span class="muted small">${kind}</span></th>
      ${averages.map((share) => html`<td class=${`num ${share >= 40 ? 'bad' : share >= 10 ? 'warn' : ''}`}>${share.toFixed(1)} %</td>`)}</tr>`))}</tbody></table>`;
}

export function Closest({ closest }) {
  if (!closest.length) return html`<p class="empty">No container has a limit.</p>`;
  return html`<table><thead><tr><th scope="col">Container</th><th scope="col">Line</th><th scope="col" class="num">Used</th></tr></thead><tbody>
    ${closest.map((each) => {
      const share = each.usage / each.bytes;
      const level = share >= 0.95 ? 'bad' : share >= 0.8 ? 'warn' : '';
      return html`<tr><th scope="row"><bdi>${inert(each.pod)} / ${inert(each.container)}</bdi>${each.node && html`<div class="muted small">${inert(each.node)}</div>`}</th>
        <td>${each.line} ${bytes(each.bytes)}<div class=${`meter ${level}`} role="img" aria-label=${percent(each.usage, each.bytes)}><div style=${{ width: `${Math.min(100, 100 * share)}%` }}></div></div></td>
        <td class=${`num ${level}`}>${percent(each.usage, each.bytes)}</td></tr>`;
    })}</tbody></table>`;
}

function NodeTable({ node }) {
  const names = { capacity: 'capacity', systemReserved: 'system-reserved', kubeReserved: 'kube-reserved', eviction: 'eviction threshold', allocatable: 'allocatable', allocated: 'allocated (requests)', limits: 'sum of limits' };
  const rows = Object.entries(names).map(([key, text]) => ({ id: key, text, memory: bytes(node.memory[key]), cpu: cores(node.cpu[key]) }));
  rows.push({ id: 'used', text: 'used by pods', memory: bytes(node.used?.usage ?? -1), cpu: cores(node.used?.cpuMilli ?? -1) });
  rows.push({ id: 'workingSet', text: 'working set of pods', memory: bytes(node.used?.workingSet ?? -1), cpu: '–' });
  return html`<${Table} caption="How the capacity of the node is split" rows=${rows} columns=${[['Part', (each) => each.text], ['Memory', (each) => each.memory, { number: true, name: 'memory' }], ['CPU', (each) => each.cpu, { number: true, name: 'cpu' }]]} />`;
}

function SignalTable({ signals }) {
  const rows = signals.map((each, index) => ({ id: `${each.signal}${index}`, ...each }));
  const number = { number: true };
  return html`<${Table} caption="Eviction signals" rows=${rows} columns=${[
    ['Signal', (each) => each.signal],
    ['Available', (each) => amountOf(each.signal, each.available), number],
    ['Of', (each) => amountOf(each.signal, each.capacity), number],
    ['Threshold', (each) => amountOf(each.signal, each.threshold), number],
    ['Distance', (each) => (each.met ? 'met' : amountOf(each.signal, each.available - each.threshold)), number],
    ['Per second', (each) => amountOf(each.signal, each.slope ?? 0), number],
    ['Reached in', (each) => ((each.seconds ?? -1) < 0 ? 'not falling' : seconds(each.seconds)), number],
  ]} />`;
}
