// All nodes: a heat map and a table; pods by class; what is closest to its line anywhere.

import { html, Component } from './ui.js';
import { bytes, cores, inert, percent, seconds } from './format.js';
import { Table, ViewHead } from './table.js';
import { Closest, Fact } from './node.js';

export function FleetView({ fleet, objects, chooseNode, go, table, onTable }) {
  const nodes = [...objects.nodes.values()].map((node) => ({ id: node.name, node, facts: fleet.get(node.name) ?? {} }));
  const pods = [...objects.pods.values()];
  const head = html`<${ViewHead} title="Fleet" table=${table} onTable=${onTable} about="All nodes of the cluster; a node opens with a click." />`;
  if (!nodes.length) return html`${head}<p class="card empty">The cluster has no nodes.</p>`;
  const classes = { Guaranteed: 0, Burstable: 0, BestEffort: 0 };
  for (const pod of pods) if (pod.qosClass in classes && pod.phase === 'Running') classes[pod.qosClass] += 1;
  const closest = nodes.flatMap(({ node, facts }) => (facts.closest ?? []).map((each) => ({ ...each, node: node.name })))
    .sort((a, b) => b.usage / b.bytes - a.usage / a.bytes).slice(0, 8);
  const open = (name) => (event) => { event.preventDefault(); chooseNode(name); go('node'); };
  const list = html`<section class="card"><${Table} caption="Nodes" rows=${nodes} columns=${[
    ['Node', (each) => html`<a href="#/node" onClick=${open(each.node.name)}><bdi>${inert(each.node.name)}</bdi></a>`],
    ['State', (each) => stateOf(each)],
    ['Memory used', (each) => bytes(each.facts.used?.usage ?? -1), { number: true }],
    ['Allocated', (each) => percent(each.facts.memory?.allocated ?? -1, each.facts.memory?.allocatable ?? 0), { number: true }],
    ['Allocatable', (each) => bytes(each.facts.memory?.allocatable ?? -1), { number: true }],
    ['CPU used', (each) => cores(each.facts.used?.cpuMilli ?? -1), { number: true }],
    ['CPU allocated', (each) => percent(each.facts.cpu?.allocated ?? -1, each.facts.cpu?.allocatable ?? 0), { number: true }],
    ['To eviction', (each) => distance(each.facts), { number: true }],
    ['Pods', (each) => `${each.facts.pods ?? '–'}`, { number: true }],
    ['Version', (each) => each.node.version],
  ]} /></section>`;
  if (table) return html`${head}${list}<section class="card"><${PodTable} pods=${pods} version=${objects.version} /></section>`;
  return html`${head}
    <section class="card"><h2>Memory in use, by node</h2>
      <div class="heat">${nodes.map((each) => {
        const memory = each.facts.memory;
        const share = memory ? (each.facts.used?.workingSet ?? 0) / memory.allocatable : 0;
        const level = share >= 0.9 ? 'bad' : share >= 0.7 ? 'warn' : '';
        return html`<a href="#/node" onClick=${open(each.node.name)} key=${each.id} title=${inert(each.node.name)} style=${{ backgroundColor: `color-mix(in srgb, var(--${level === 'bad' ? 'max' : level === 'warn' ? 'high' : 'anon'}) ${Math.round(Math.min(1, share) * 32)}%, var(--container))` }}><div class="name"><bdi>${inert(each.node.name)}</bdi></div>
          <div class=${`meter ${level}`} role="img" aria-label=${`memory ${percent(share, 1)}`}><div style=${{ width: `${Math.min(100, 100 * share)}%` }}></div></div>
          <div class="small muted">${memory ? `${percent(share, 1)} memory` : 'no figures'}</div></a>`;
      })}</div>
    </section>
    <section class="card"><h2>Pods</h2><div class="facts">
      <${Fact} label="running" value=${pods.filter((pod) => pod.phase === 'Running').length} />
      <${Fact} label="Guaranteed" value=${classes.Guaranteed} /><${Fact} label="Burstable" value=${classes.Burstable} /><${Fact} label="BestEffort" value=${classes.BestEffort} />
      <${Fact} label="pending" value=${pods.filter((pod) => pod.phase === 'Pending').length} /><${Fact} label="failed" value=${pods.filter((pod) => pod.phase === 'Failed').length} />
    </div></section>
    <section class="card"><h2>Closest to a line</h2>${closest.length ? html`<${Closest} closest=${closest} />` : html`<p class="empty">No container has a limit.</p>`}</section>
    ${list}`;
}

function stateOf({ node, facts }) {
  if (facts.problem) return facts.problem;
  const bad = node.conditions.filter((each) => (each.type === 'Ready' ? each.status !== 'True' : each.status === 'True')).map((each) => (each.type === 'Ready' ? 'NotReady' : each.type));
  return [...(bad.length ? bad : ['Ready']), ...(node.unschedulable ? ['unschedulable'] : [])].join(', ');
}

function distance(facts) {
  const memory = (facts.signals ?? []).find((each) => each.signal === 'memory.available');
  if (!memory) return '–';
  const text = memory.met ? 'met' : bytes(memory.available - memory.threshold);
  return (memory.seconds ?? -1) >= 0 && memory.seconds < 3600 ? `${text}, ${seconds(memory.seconds)}` : text;
}

// Rendered again only when pods have changed, not with every reading.
export class PodTable extends Component {
  shouldComponentUpdate(next) {
    return next.version !== this.props.version || next.pods.length !== this.props.pods.length;
  }

  render({ pods }) {
    const rows = pods.map((pod) => ({ ...pod, id: pod.uid })).sort((a, b) => `${a.namespace}/${a.name}`.localeCompare(`${b.namespace}/${b.name}`));
    return html`<${Table} caption="Pods" empty="There are no pods." rows=${rows} columns=${[
      ['Pod', (pod) => html`<a href=${`#/pod/${encodeURIComponent(pod.namespace)}/${encodeURIComponent(pod.name)}`}><bdi>${inert(pod.namespace)}/${inert(pod.name)}</bdi></a>`],
      ['Class', (pod) => pod.qosClass],
      ['Phase', (pod) => (pod.reason ? `${pod.phase} (${pod.reason})` : pod.phase)],
      ['Restarts', (pod) => String(pod.containers.reduce((sum, each) => sum + each.restarts, 0)), { number: true }],
      ['Node', (pod) => pod.node || '–'],
      ['Resize', (pod) => pod.resize || pod.conditions.filter((each) => each.type.startsWith('PodResize') && each.status === 'True').map((each) => each.reason || each.type).join(', ') || '–'],
    ]} />`;
  }
}
