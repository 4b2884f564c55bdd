// The cgroup tree as a picture: each cgroup is a vessel that is filled to its usage, with all its lines at once.
// Lines and their formulas are computed by the node (rules/picture); fills and the kernel's own values are its readings.

import { html, Component, useRef, useState } from './ui.js';
import { bytes, cores, count, inert, percent, shortened } from './format.js';
import { COLUMN } from './state.js';
import { Table, ViewHead } from './table.js';
import { recentMarks, MarkBadge } from './marks.js';

export const FILLS = [
  ['anon', 'anonymous'],
  ['shmem', 'shared memory'],
  ['kernel', 'kernel'],
  ['other', 'other'],
  ['activeFile', 'active file cache'],
  ['inactiveFile', 'inactive file cache (reclaimable)'],
];
const LABELS = 84; // the width of names with amounts
const ROUND = 11; // of the lower corners of a vessel, as in the style sheet
const FEW = 16; // pods whose lines have their amounts beside them
const MANY = 60; // pods; of more, only those near the visible part are drawn
const LINE_NAMES = ['min', 'low', 'high', 'max'];
export const LINE_TEXTS = {
  min: 'below it nothing is reclaimed',
  low: 'below it memory is reclaimed only under severe pressure',
  high: 'above it tasks are throttled and memory is reclaimed',
  max: 'at this limit the kernel kills processes',
};

// From the bottom up. The parts may exceed the usage, because the kernel's files are not read at one instant.
export function fillsOf(row) {
  if (!row || row[COLUMN.usage] < 0) return [];
  let left = row[COLUMN.usage];
  const found = [];
  for (const name of ['anon', 'shmem', 'kernel', 'activeFile', 'inactiveFile']) {
    const amount = Math.min(Math.max(0, row[COLUMN[name]]), left);
    left -= amount;
    found.push([name, amount]);
  }
  found.splice(3, 0, ['other', left]);
  return found.filter(([, amount]) => amount > 0);
}

// A picture of a manifest has its fills in the vessel, a live one in its row.
export function kernelLines(vessel, row) {
  const lines = [];
  for (const name of LINE_NAMES) {
    const own = (vessel.lines ?? []).find((line) => line.name === name && !line.of);
    const kernel = row ? row[COLUMN[name]] : -1;
    if (own) lines.push({ ...own, at: row && kernel >= 0 ? kernel : own.declaredBytes, kernel });
    else if (kernel > 0) lines.push({ name, at: kernel, kernel, effectiveBytes: kernel, declaredBytes: null });
  }
  for (const line of vessel.lines ?? []) if (line.of) lines.push({ ...line, at: line.declaredBytes, kernel: -1 });
  return lines;
}

function scaleOf(vessel, row, lines) {
  const own = lines.filter((line) => !line.of).map((line) => line.at);
  const limit = lines.find((line) => line.name === 'max')?.at ?? vessel.scaleBytes;
  return Math.max(1, limit, row ? row[COLUMN.usage] : 0, ...own);
}

export function usageText(vessel, row) {
  if (!row || row[COLUMN.usage] < 0) return 'no reading';
  const limit = row[COLUMN.max];
  return limit > 0 ? `${bytes(row[COLUMN.usage])} of ${bytes(limit)}` : bytes(row[COLUMN.usage]);
}

export function vesselLabel(vessel, row) {
  const what = { pods: 'all pods', class: `class ${vessel.name}`, pod: `pod ${vessel.name}`, container: `container ${vessel.name}` };
  const parts = [what[vessel.level] ?? vessel.name, usageText(vessel, row)];
  for (const line of kernelLines(vessel, row)) {
    parts.push(`${line.of ? `${line.name} of ${line.of}` : line.name} ${bytes(line.at)}`);
  }
  return inert(parts.join(', '));
}

// One vessel as SVG. Rendered again only when its readings or its lines have changed.
export class Tank extends Component {
  shouldComponentUpdate(next) {
    const now = this.props;
    return next.row !== now.row || next.vessel !== now.vessel || next.pressed !== now.pressed || next.labels !== now.labels || next.amounts !== now.amounts;
  }

  // `labels`: names of the lines beside the vessel; `amounts`: also where they are.
  render({ vessel, row, width = 56, height = 104, pressed = false, onInspect, labels = false, amounts = false, bare = false }) {
    const lines = kernelLines(vessel, row);
    const scale = scaleOf(vessel, row, lines);
    const top = 6;
    const bottom = height - 12;
    const y = (amount) => top + (bottom - top) * (1 - Math.min(1, amount / scale));
    const right = labels ? width - (amounts ? LABELS : 40) : width;
    const at = labels ? labelPlaces(lines, y, height) : null;
    let below = 0;
    const parts = fillsOf(row).map(([name, amount]) => {
      const from = y(below + amount);
      const rect = html`<rect class=${`fill ${name}`} data-fill=${name} data-bytes=${amount} x="1" y=${from} width=${right - 2} height=${Math.max(0, y(below) - from)} />`;
      below += amount;
      return rect;
    });
    const without = lines.map((line) => hatched(line, y, right)).filter(Boolean);
    return html`<button type="button" class=${labels ? 'tank labelled' : 'tank'} aria-pressed=${pressed} aria-label=${vesselLabel(vessel, row)}
        data-vessel=${vessel.id ?? ''} data-level=${vessel.level} data-path=${vessel.path}
        onMouseEnter=${() => onInspect?.(vessel, false)} onFocus=${() => onInspect?.(vessel, false)} onClick=${() => onInspect?.(vessel, true)}>
      <svg width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} aria-hidden="true">
        ${without.length > 0 && html`<defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line class="hatch-line" x1="0" y1="0" x2="0" y2="5" /></pattern></defs>`}
        <g class="hold">
          <rect class="empty-part" x="1" y=${top} width=${right - 2} height=${bottom - top} />
          ${bands(lines, y, right)}
          ${parts}
          ${below > 0 && html`<path class="surface" d=${`M1 ${y(below)} H${right - 1}`} />`}
          ${without}
        </g>
        <path class="wall" d=${`M1 ${top} V${bottom - ROUND} Q1 ${bottom} ${1 + ROUND} ${bottom} H${right - 1 - ROUND} Q${right - 1} ${bottom} ${right - 1} ${bottom - ROUND} V${top}`} />
        ${lines.map((line) => html`<g class="line-group" data-line=${line.name} data-of=${line.of ?? ''} data-bytes=${line.at}>
          <path class="halo" d=${`M0 ${y(line.at)} H${right}`} />
          <path class=${`line ${line.name} ${line.of ? 'above' : ''}`} d=${`M0 ${y(line.at)} H${right}`} />
          ${at && html`<text class=${`line-name ${line.name}`} x=${right + 4} y=${at.get(line)}>${line.name}${amounts ? html` <tspan class="line-amount">${bytes(line.at)}</tspan>` : ''}</text>`}
        </g>`)}
        ${cpuBar(vessel, row, right, height)}
      </svg>
      ${row && row[COLUMN.usage] >= 0 && html`<span class="use">${bytes(row[COLUMN.usage])}</span>`}
      ${!(labels && amounts) && html`<span class="name">${limitText(lines)}</span>`}
      ${!bare && html`<span class="name"><bdi>${shortened(vessel.level === 'pod' ? 'pod' : vessel.name, 24)}</bdi></span>`}
    </button>`;
  }
}

// What the kernel does between the lines: below min it takes nothing, between high and max it throttles.
function bands(lines, y, right) {
  const own = Object.fromEntries(lines.filter((line) => !line.of).map((line) => [line.name, line.at]));
  const found = [];
  if (own.min > 0) found.push(['kept', own.min, 0]);
  if (own.low > (own.min ?? 0)) found.push(['low-band', own.low, own.min ?? 0]);
  if (own.high > 0) found.push(['throttled', Math.max(own.high, own.max ?? lines.find((line) => line.name === 'max')?.at ?? own.high), own.high]);
  return found.map(([name, to, from]) => html`<rect class=${`band ${name}`} x="1" y=${y(to)} width=${right - 2} height=${Math.max(0, y(from) - y(to))} />`);
}

// Names of lines that are close to each other must not cover each other.
function labelPlaces(lines, y, height) {
  const places = new Map();
  let last = height - 3;
  for (const line of [...lines].sort((a, b) => a.at - b.at)) {
    last = Math.min(y(line.at) + 4, last - 11);
    places.set(line, Math.max(9, last));
  }
  return places;
}

function limitText(lines) {
  const limit = lines.find((line) => line.name === 'max');
  return limit ? `of ${bytes(limit.at)}` : 'no limit';
}

// Where the declared value has no effect: between what holds and what is declared.
function hatched(line, y, right) {
  if (line.of || line.declaredBytes === null || line.effectiveBytes === line.declaredBytes) return null;
  const [low, high] = [Math.min(line.effectiveBytes, line.declaredBytes), Math.max(line.effectiveBytes, line.declaredBytes)];
  return html`<rect class="ineffective" data-ineffective=${line.name} x="1" y=${y(high)} width=${right - 2} height=${Math.max(0, y(low) - y(high))} />`;
}

// Below the vessel: CPU in use against its quota (or the node's CPUs), and the share that its weight guarantees.
function cpuBar(vessel, row, right, height) {
  const cpu = vessel.cpu;
  if (!cpu) return null;
  const quota = row && row[COLUMN.quotaMilli] > 0 ? row[COLUMN.quotaMilli] : (cpu.quotaMilli ?? -1);
  const scale = Math.max(quota, cpu.worstCaseMilli ?? 0, row ? row[COLUMN.cpuMilli] : 0, 1) * 1.05;
  const x = (milli) => Math.min(right - 1, (right * milli) / scale);
  const used = row ? Math.max(0, row[COLUMN.cpuMilli]) : 0;
  const top = height - 8;
  return html`<g data-cpu=${used}>
    <rect class="cpu-ground" x="0" y=${top} width=${right} height="7" rx="2" />
    <rect class="cpu-use" x="0" y=${top} width=${x(used)} height="7" rx="2" />
    ${quota > 0 && html`<path class="cpu-quota" d=${`M${x(quota)} ${top - 1} v9`} />`}
    ${cpu.worstCaseMilli > 0 && html`<path class="cpu-share" d=${`M${x(cpu.worstCaseMilli)} ${top - 1} v9`} />`}
  </g>`;
}

export function HullLegend() {
  return html`<div class="legend" aria-label="Legend">
    ${FILLS.map(([name, text]) => html`<span><i class=${`swatch ${name}`}></i>${text}</span>`)}
    ${LINE_NAMES.map((name) => html`<span><i class=${`swatch line ${name}`}></i>${name}</span>`)}
    <span><i class="swatch line above"></i>of an ancestor</span>
    <span>hatched: declared without effect</span>
    <span>bar below: CPU in use, limit (red), share by weight (dotted)</span>
  </div>`;
}

// Everything about one vessel in words: each line with its value in the kernel, its formula and its source.
export function Inspector({ vessel, row, pinned, onOpen }) {
  if (!vessel) {
    return html`<aside class="card inspector"><h2>Details</h2><p class="muted">Point at a vessel, or reach it with the Tab key, to see each line with its formula.</p></aside>`;
  }
  const lines = kernelLines(vessel, row);
  const cpu = vessel.cpu;
  const figure = (name) => (row ? row[COLUMN[name]] : -1);
  return html`<aside class="card inspector" data-inspector=${vessel.id ?? vessel.path}>
    <h2><bdi>${shortened(vessel.level === 'container' && vessel.pod ? `${vessel.pod} / ${vessel.name}` : vessel.name, 44)}</bdi></h2>
    ${vessel.uid && onOpen && html`<p><button type="button" onClick=${() => onOpen(vessel)}>Open pod</button></p>`}
    ${row && html`<dl>
      <dt>memory</dt><dd>${usageText(vessel, row)}</dd>
      ${FILLS.filter(([name]) => name !== 'other').map(([name, text]) => html`<dt><i class=${`swatch ${name}`}></i> ${text.replace(' (reclaimable)', '')}</dt><dd>${bytes(figure(name))}</dd>`)}
      <dt>CPU now</dt><dd>${cores(figure('cpuMilli'))}</dd>
      <dt>throttled periods</dt><dd>${figure('periods') > 0 ? `${figure('throttledPeriods')} of ${figure('periods')}` : '–'}</dd>
      <dt>processes</dt><dd>${figure('pids') >= 0 ? figure('pids') : '–'}${figure('pidsMax') > 0 ? ` of ${figure('pidsMax')}` : ''}</dd>
      <dt>OOM kills</dt><dd class=${figure('oomKills') > 0 ? 'bad' : ''}>${figure('oomKills') >= 0 ? figure('oomKills') : '–'}</dd>
    </dl>`}
    <h3>Lines</h3>
    ${lines.length ? lines.map((line) => html`<${LineText} line=${line} />`) : html`<p class="muted small">No limit and no protection.</p>`}
    ${cpu && html`<div class="line-row"><div class="title"><span>CPU</span><span>${cpu.quotaMilli != null ? `limit ${cores(cpu.quotaMilli)}` : 'no limit'}</span></div>
      ${cpu.quotaFormula && html`<div class="mono formula small">${cpu.quotaFile}: ${inert(cpu.quotaFormula)}</div>`}
      ${cpu.weight != null && html`<div class="small">${cpu.weightFile} ${cpu.weight}${cpu.worstCaseMilli != null ? `: at least ${cores(cpu.worstCaseMilli)} when all compete` : ''}</div>`}
      ${cpu.weightFormula && html`<div class="mono formula small">${inert(cpu.weightFormula)}</div>`}
      ${cpu.weightSource && html`<div class="muted small formula"><bdi>${inert(cpu.weightSource)}</bdi></div>`}
    </div>`}
    ${vessel.oomScoreAdj != null && html`<div class="line-row"><div class="title"><span>oom_score_adj</span><span>${vessel.oomScoreAdj}</span></div>
      <div class="mono formula small">${inert(vessel.oomFormula ?? '')}</div></div>`}
    ${(vessel.remarks ?? []).map((text) => html`<p class="small">${inert(text)}</p>`)}
    <h3>Cgroup</h3><p class="small muted mono formula"><bdi>${inert(vessel.path)}</bdi></p>
  </aside>`;
}

function LineText({ line }) {
  const differs = line.declaredBytes !== null && line.effectiveBytes !== line.declaredBytes;
  return html`<div class="line-row" data-line-row=${line.name}>
    <div class="title"><span class=${line.name}>${line.name}${line.of ? html` <span class="muted">of <bdi>${shortened(line.of, 24)}</bdi></span>` : ''}</span><span>${bytes(line.at)}</span></div>
    <div class="muted small">${LINE_TEXTS[line.name]}</div>
    ${differs && html`<div class="warn small">declared ${bytes(line.declaredBytes)}, effective ${bytes(line.effectiveBytes)}${line.binding ? html` because of <bdi>${inert(line.binding)}</bdi>` : ''}</div>`}
    ${line.kernel >= 0 && line.declaredBytes !== null && line.kernel !== line.declaredBytes && !line.of && html`<div class="bad small">the kernel has ${bytes(line.kernel)}, wanted is ${bytes(line.declaredBytes)}</div>`}
    ${line.formula && html`<div class="mono formula small">${inert(line.formula)}</div>`}
    ${line.source && html`<div class="muted small formula"><bdi>${inert(line.source)}</bdi></div>`}
    ${line.note && html`<div class="small">${inert(line.note)}</div>`}
  </div>`;
}

export function Hull({ state, go, table, onTable, series }) {
  const [inspected, setInspected] = useState(null);
  const [pinned, setPinned] = useState(false);
  const first = useRef(null);
  const inspect = (vessel, pin) => {
    if (pin) setPinned(!(pinned && inspected === vessel.id));
    if (pin || !pinned) setInspected(vessel.id);
  };
  const all = [...state.vessels.values()];
  const root = all.find((vessel) => vessel.level === 'pods');
  const head = html`<${ViewHead} title="Hull" table=${table} onTable=${onTable}
    about="Every cgroup of the node, filled to its usage. Reclaimable cache is pale; lines show where the kernel changes its behaviour." />`;
  if (!root) return html`${head}<p class="card empty">${state.problem ? inert(state.problem) : 'The node has no pods yet.'}</p>`;
  if (table) return html`${head}<section class="card"><${HullTable} state=${state} /></section>`;
  const classes = all.filter((vessel) => vessel.level === 'class');
  const guaranteed = all.filter((vessel) => vessel.level === 'pod' && vessel.parent === root.id);
  const marks = recentMarks(state);
  const amount = all.reduce((sum, vessel) => sum + (vessel.level === 'pod'), 0);
  const [few, many] = [amount <= FEW, amount > MANY];
  const props = { state, marks, inspect, inspected, go, few, many };
  if (!inspected && !state.vessels.has(first.current)) first.current = closestToLimit(state);
  const vessel = state.vessels.get(inspected ?? first.current) ?? null;
  return html`${head}
    <div class=${many ? 'hull many' : 'hull'}>
      <div class="levels">
        <section class="card all-pods" aria-label="All pods">
          <div class="level-head">
            <${Tank} vessel=${root} row=${state.rows.get(root.id)} width=${204} height=${124} labels=${true} amounts=${true} bare=${true} pressed=${inspected === root.id} onInspect=${inspect} />
            <div>
              <h2>All pods</h2>
              <p class="muted">${usageText(root, state.rows.get(root.id))}, CPU ${cores(state.figure(root.id, 'cpuMilli'))}</p>
              <p class="muted small mono formula"><bdi>${inert(root.path)}</bdi></p>
            </div>
          </div>
          <${HullLegend} />
        </section>
        <div class=${few ? 'classes few' : 'classes'}>
        ${guaranteed.length > 0 && html`<section class="card" aria-label="Guaranteed" style=${{ flexGrow: guaranteed.length }}><h2>Guaranteed <span class="muted small">${count(guaranteed.length, 'pod')}, directly below all pods</span></h2>
          <div class="class-grid">${guaranteed.map((pod) => html`<${PodCard} key=${pod.id} pod=${pod} ...${props} />`)}</div></section>`}
        ${classes.map((each) => {
          const pods = state.children(each.id);
          return html`<section class="card" key=${each.id} aria-label=${each.name} style=${{ flexGrow: Math.max(1, pods.length) }}>
            <div class="level-head">
              <${Tank} vessel=${each} row=${state.rows.get(each.id)} width=${64} height=${76} bare=${true} pressed=${inspected === each.id} onInspect=${inspect} />
              <div><h2>${inert(each.name)} <span class="muted small">${count(pods.length, 'pod')}</span></h2>
              <p class="muted small">${usageText(each, state.rows.get(each.id))}, CPU ${cores(state.figure(each.id, 'cpuMilli'))}</p></div>
            </div>
            ${pods.length > 0 && html`<div class="class-grid">${pods.map((pod) => html`<${PodCard} key=${pod.id} pod=${pod} ...${props} />`)}</div>`}
          </section>`;
        })}
        </div>
      </div>
      <${Inspector} vessel=${vessel} row=${vessel && state.rows.get(vessel.id)} pinned=${pinned} onOpen=${go && ((each) => go(`pod/${each.namespace}/${each.pod}`))} />
    </div>`;
}

// The container that is closest to its limit: the first whose details are shown.
function closestToLimit(state) {
  let [found, most] = [null, -1];
  for (const vessel of state.vessels.values()) {
    if (vessel.level !== 'container') continue;
    const limit = state.figure(vessel.id, 'max');
    const share = limit > 0 ? state.figure(vessel.id, 'usage') / limit : 0;
    if (share > most) [found, most] = [vessel.id, share];
  }
  return found;
}

const cards = new WeakMap();
const near = globalThis.IntersectionObserver
  ? new IntersectionObserver((entries) => { for (const each of entries) cards.get(each.target)?.moved(each.isIntersecting); }, { rootMargin: '400px' })
  : null;

// A pod with its vessel and those of its containers. Rendered again only when one of them has changed, and of many pods
// only near the visible part.
class PodCard extends Component {
  constructor(props) {
    super(props);
    this.state = { near: !(props.many && near) };
  }

  componentDidMount() {
    cards.set(this.base, this);
    if (this.props.many) near?.observe(this.base);
  }

  componentWillUnmount() {
    near?.unobserve(this.base);
  }

  moved(isNear) {
    if (!isNear) {
      if (this.base.contains(document.activeElement)) return;
      this.height = this.base.offsetHeight;
    }
    this.setState({ near: isNear });
  }

  shouldComponentUpdate(next, { near: isNear }) {
    if (isNear !== this.state.near) {
      this.signature = null;
      return true;
    }
    if (!isNear) return next.pod !== this.props.pod;
    const signature = next.state.children(next.pod.id).map((each) => next.state.rows.get(each.id));
    signature.push(next.state.rows.get(next.pod.id), next.pod, next.few, next.marks.get(next.pod.uid), next.inspected === next.pod.id || signature.length && next.state.vessels.get(next.inspected)?.uid === next.pod.uid ? next.inspected : '');
    const same = this.signature && signature.length === this.signature.length && signature.every((each, index) => each === this.signature[index]);
    this.signature = signature;
    return !same;
  }

  render({ pod, state, marks, inspect, inspected, go, few }, { near: isNear }) {
    const link = `#/pod/${encodeURIComponent(pod.namespace)}/${encodeURIComponent(pod.pod)}`;
    const title = html`<h3>${go ? html`<a href=${link} title=${inert(pod.name)}><bdi>${shortened(pod.pod, 40)}</bdi></a>` : html`<bdi>${shortened(pod.pod, 40)}</bdi>`}
      ${pod.namespace !== 'default' && html`<span class="ns"><bdi>${shortened(pod.namespace, 18)}</bdi></span>`}</h3>`;
    if (!isNear) return html`<article class="pod far" style=${{ minHeight: `${this.height ?? 236}px` }} data-pod=${pod.pod} data-namespace=${pod.namespace}>${title}</article>`;
    const marked = marks.get(pod.uid);
    const children = state.children(pod.id);
    const size = few ? { width: 152, height: 148, labels: true, amounts: true } : { width: 64, height: 128 };
    return html`<article class=${`pod ${children.length > 1 ? 'wide' : ''} ${marked ? `marked ${marked.kind}` : ''}`} data-pod=${pod.pod} data-namespace=${pod.namespace}>
      ${title}
      ${marked && html`<${MarkBadge} mark=${marked} />`}
      <div class="tanks">
        <${Tank} vessel=${pod} row=${state.rows.get(pod.id)} width=${44} height=${size.height} pressed=${inspected === pod.id} onInspect=${inspect} />
        ${children.map((each) => html`<${Tank} key=${each.id} vessel=${each} row=${state.rows.get(each.id)} ...${size} pressed=${inspected === each.id} onInspect=${inspect} />`)}
      </div>
    </article>`;
  }
}

export function HullTable({ state }) {
  const rows = [...state.vessels.values()].map((vessel) => ({ id: vessel.id, vessel, row: state.rows.get(vessel.id) }));
  const figure = (name) => (each) => bytes(each.row ? each.row[COLUMN[name]] : -1);
  const number = (name) => ({ number: true, name });
  const line = (name) => (each) => {
    const found = kernelLines(each.vessel, each.row).find((one) => one.name === name);
    return found ? `${bytes(found.at)}${found.of ? ' (ancestor)' : found.declaredBytes !== null && found.effectiveBytes !== found.declaredBytes ? ` (effective ${bytes(found.effectiveBytes)})` : ''}` : '–';
  };
  return html`<${Table} caption="All cgroups of the node with their usage and their lines" rows=${rows} columns=${[
    ['Cgroup', (each) => (each.vessel.level === 'container' ? `${each.vessel.namespace}/${each.vessel.pod}/${each.vessel.name}` : each.vessel.name)],
    ['Level', (each) => each.vessel.level],
    ['Memory', figure('usage'), number('usage')],
    ['Anonymous', figure('anon'), number('anon')],
    ['Shared', figure('shmem'), number('shmem')],
    ['Kernel', figure('kernel'), number('kernel')],
    ['Active file', figure('activeFile'), number('activeFile')],
    ['Inactive file', figure('inactiveFile'), number('inactiveFile')],
    ['min', line('min'), number('min')],
    ['low', line('low'), number('low')],
    ['high', line('high'), number('high')],
    ['max', line('max'), number('max')],
    ['Of max', (each) => percent(each.row ? each.row[COLUMN.usage] : -1, each.row ? each.row[COLUMN.max] : -1), number('share')],
    ['CPU', (each) => cores(each.row ? each.row[COLUMN.cpuMilli] : -1), number('cpuMilli')],
    ['CPU limit', (each) => cores(each.row ? each.row[COLUMN.quotaMilli] : -1), number('quotaMilli')],
    ['CPU worst case', (each) => cores(each.vessel.cpu?.worstCaseMilli ?? -1), number('worstCase')],
    ['Throttled', (each) => (each.row && each.row[COLUMN.periods] > 0 ? percent(each.row[COLUMN.throttledPeriods], each.row[COLUMN.periods]) : '–'), number('throttled')],
    ['OOM kills', (each) => (each.row && each.row[COLUMN.oomKills] >= 0 ? String(each.row[COLUMN.oomKills]) : '–'), number('oomKills')],
    ['Path', (each) => each.vessel.path],
  ]} />`;
}
