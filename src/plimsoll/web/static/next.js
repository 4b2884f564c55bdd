// The order in which the node would evict pods for memory, and the kernel would kill containers, as two ranked lists.

import { html } from './ui.js';
import { bytes, inert, shortened } from './format.js';
import { Table, ViewHead } from './table.js';

const MOST = 25;
const signed = (number) => String(number).replace('-', '−');

export function NextView({ state, table, onTable }) {
  const orders = state.orders;
  const head = html`<${ViewHead} title="Eviction and OOM order" table=${table} onTable=${onTable}
    about="If memory runs short now: which pod the node evicts first, and which container the kernel kills first if memory runs out before that." />`;
  if (!orders) return html`${head}<p class="card empty">${state.problem ? inert(state.problem) : 'Waiting for the first reading …'}</p>`;
  const used = (id) => (id ? state.workingSet(id) : -1);
  if (table) {
    return html`${head}
      <section class="card"><${Table} caption="Order of eviction for memory" empty="No pods." rows=${orders.eviction.map((each, index) => ({ ...each, place: index + 1 }))} columns=${[
        ['Pod', (each) => `${each.namespace}/${each.pod}`],
        ['Place', (each) => String(each.place), { number: true, name: 'place' }],
        ['Uses more than it requests', (each) => (each.exceeds ? 'yes' : 'no')],
        ['Priority', (each) => String(each.priority), { number: true }],
        ['Working set', (each) => bytes(used(each.id)), { number: true }],
        ['Request', (each) => bytes(each.request), { number: true }],
        ['Before the next because', (each) => (each.exempt ? 'exempt' : each.key || 'last')],
      ]} /></section>
      <section class="card"><${Table} caption="The kernel's order, if the machine is out of memory" empty="No containers." rows=${orders.oom.map((each, index) => ({ ...each, place: index + 1 }))} columns=${[
        ['Container', (each) => `${each.namespace}/${each.pod}/${each.container}`],
        ['Place', (each) => String(each.place), { number: true, name: 'place' }],
        ['Points', (each) => String(each.points), { number: true }],
        ['Share of memory ‰', (each) => String(each.share), { number: true }],
        ['oom_score_adj', (each) => String(each.adj), { number: true }],
      ]} /></section>`;
  }
  return html`${head}
    <div class="rails">
      <section class="card"><h2>Evicted by the node</h2>
        <p class="muted small">First the pods that use more than they request, then lower priority, then the larger excess, or those closer to their request. The QoS class does not decide.</p>
        <${Rail} rows=${orders.eviction} empty="No pods." text=${(each) => html`
          <div><strong><bdi>${shortened(each.pod, 36)}</bdi></strong> ${each.namespace !== 'default' && html`<span class="muted small"><bdi>${shortened(each.namespace, 20)}</bdi></span>`}</div>
          <div class="small muted">${bytes(used(each.id))} of ${bytes(each.request)} requested, priority ${each.priority}</div>`}
          right=${(each) => html`<span class=${`chip ${each.exempt ? '' : each.exceeds ? 'warn' : ''}`}>${each.exempt ? 'exempt' : inert(each.key || 'last')}</span>`} />
      </section>
      <section class="card"><h2>Killed by the kernel</h2>
        <p class="muted small">Points = its share of the machine's memory in thousandths + oom_score_adj. The container with the most points is killed first.</p>
        <${Rail} rows=${orders.oom} empty="No containers." text=${(each) => html`
          <div><strong><bdi>${shortened(each.pod, 30)} / ${shortened(each.container, 18)}</bdi></strong></div>
          <div class="small muted">${each.share} + ${signed(each.adj)} = ${signed(each.points)}</div>`}
          right=${(each) => html`<span class="chip">${each.exempt ? 'exempt' : `${signed(each.points)} points`}</span>`} />
      </section>
    </div>`;
}

function Rail({ rows, text, right, empty }) {
  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  const first = rows.findIndex((each) => !each.exempt);
  return html`<ol class="rail">
    ${rows.slice(0, MOST).map((each, index) => html`<li key=${`${each.namespace}/${each.pod}/${each.container ?? ''}`} class=${`${index === first ? 'first' : ''} ${each.exempt ? 'exempt' : ''}`} data-place=${index + 1} data-pod=${each.pod}>
      <span class="place">${index + 1}</span><div>${text(each)}</div>${right(each)}</li>`)}
    ${rows.length > MOST && html`<li><span></span><span class="muted">and ${rows.length - MOST} more: see the table</span></li>`}
  </ol>`;
}
