// The resize panel: while you drag, the server forecasts by the rules of `plimsoll resize`; then one PATCH commits.

import { html, useEffect, useRef, useState } from './ui.js';
import { bytes, cores, inert, quantityBytes, quantityMilli } from './format.js';
import { asked, posted } from './session.js';

const WORDS = {
  accepted: 'Accepted: the node has enough free resources',
  unchanged: 'No change',
  deferred: 'Deferred: the node does not have enough free resources now',
  infeasible: 'Infeasible: it does not fit on this node',
  refused: 'Refused by the API server',
  unknown: 'Unknown: the node decides',
  ended: 'The pod has no active node',
  unscheduled: 'Not scheduled yet',
};
const WAIT_MS = 150;
const MI = 1024 * 1024;

// Requests and limits of the container that have an amount: the user can drag them.
function slidersOf(container) {
  const found = [];
  for (const kind of ['requests', 'limits']) {
    const memory = quantityBytes(container[kind].memory);
    const cpu = quantityMilli(container[kind].cpu);
    if (memory !== null) found.push({ kind, resource: 'memory', now: Math.max(1, Math.round(memory / MI)), text: (value) => bytes(value * MI), quantity: (value) => `${value}Mi`, step: 1 });
    if (cpu !== null) found.push({ kind, resource: 'cpu', now: Math.max(1, Math.round(cpu)), text: (value) => `${cores(value)} CPU`, quantity: (value) => `${value}m`, step: 10 });
  }
  return found;
}

export function ResizePanel({ pod, name, who }) {
  const container = pod.containers.find((each) => each.name === name);
  const [values, setValues] = useState({});
  const [answer, setAnswer] = useState(null);
  const [busy, setBusy] = useState(false);
  const [sent, setSent] = useState('');
  const asking = useRef(0);
  const sliders = container ? slidersOf(container) : [];
  const changed = sliders.filter((each) => values[`${each.kind}.${each.resource}`] !== undefined && values[`${each.kind}.${each.resource}`] !== each.now);
  const question = JSON.stringify(changed.map((each) => [each.kind, each.resource, each.quantity(values[`${each.kind}.${each.resource}`])]));

  useEffect(() => {
    const number = (asking.current += 1);
    if (!changed.length) {
      setAnswer(null);
      return undefined;
    }
    setBusy(true);
    const timer = setTimeout(async () => {
      const body = { namespace: pod.namespace, pod: pod.name, container: name, requests: {}, limits: {} };
      for (const [kind, resource, quantity] of JSON.parse(question)) body[kind][resource] = quantity;
      let found;
      try {
        found = await posted('api/forecast', body);
      } catch (error) {
        found = { outcome: 'unknown', message: error.message };
      }
      if (number === asking.current) {
        setAnswer(found);
        setBusy(false);
      }
    }, WAIT_MS);
    return () => clearTimeout(timer);
  }, [question]);

  if (!sliders.length) {
    return html`<section class="card"><h2>Resize</h2><p class="muted">This container has no requests and no limits: a pod cannot leave its class BestEffort by a resize.</p></section>`;
  }
  const commit = async () => {
    setBusy(true);
    try {
      await asked(answer.path, { method: 'PATCH', headers: { 'Content-Type': 'application/strategic-merge-patch+json' }, body: JSON.stringify(answer.patch) });
      setSent('The resize was requested; the picture changes when the node has applied it.');
      setValues({});
    } catch (error) {
      setSent(`The server refused it: ${error.message}`);
    }
    setBusy(false);
  };
  const allowed = answer && answer.patch && !['refused', 'unchanged'].includes(answer.outcome) && who.mayResize;
  return html`<section class="card" data-resize-panel=${name}>
    <h2>Resize <bdi class="muted">${inert(name)}</bdi></h2>
    ${sliders.map((each) => {
      const key = `${each.kind}.${each.resource}`;
      const value = values[key] ?? each.now;
      const most = Math.max(each.now * 4, each.step * 10);
      return html`<div class="slider" key=${key}>
        <div class="row"><label for=${key}>${each.resource} ${each.kind === 'limits' ? 'limit' : 'request'}</label><strong>${each.text(value)}${value !== each.now ? html` <span class="muted small">now ${each.text(each.now)}</span>` : ''}</strong></div>
        <input id=${key} type="range" min=${Math.min(each.step, each.now)} max=${most} step=${each.now % each.step ? 1 : each.step} value=${value} aria-valuetext=${each.text(value)}
          onInput=${(event) => { setSent(''); setValues({ ...values, [key]: Number(event.target.value) }); }} />
      </div>`;
    })}
    <div class=${`verdict ${answer?.outcome ?? ''}`} role="status" aria-live="polite" data-outcome=${answer && !busy ? answer.outcome : ''}>
      ${answer ? html`<${Verdict} answer=${answer} busy=${busy} />` : html`<p class="muted">${busy ? 'Computing the forecast …' : sent || 'Drag to see what the node would answer. Nothing is sent before you commit.'}</p>`}
    </div>
    ${answer && sent && html`<p class="notice">${inert(sent)}</p>`}
    <button type="button" class="primary" disabled=${!allowed || busy} onClick=${commit}>Commit resize</button>
    ${' '}<button type="button" disabled=${!changed.length} onClick=${() => { setValues({}); setSent(''); }}>Discard</button>
    ${!who.mayResize && html`<p class="muted small">You may not resize pods.</p>`}
  </section>`;
}

function Verdict({ answer, busy }) {
  const lists = [...(answer.errors ?? []), ...(answer.notes ?? [])];
  const room = answer.room;
  return html`<strong>${WORDS[answer.outcome] ?? inert(answer.outcome)}</strong>${busy && html`<span class="muted"> …</span>`}
    ${answer.message && html`<p>${inert(answer.message)}</p>`}
    ${room && html`<p>Short of ${Object.entries(room.short).map(([name, amount]) => `${inert(amount)} ${inert(name)}`).join(', ')}. ${room.pods?.length ? html`These pods would have to go: <strong><bdi>${room.pods.map(inert).join(', ')}</bdi></strong>.` : 'Removing pods would not free enough.'}</p>`}
    ${answer.nearest && html`<p>Nearest valid request: <code class="formula">${inert(JSON.stringify(answer.nearest))}</code></p>`}
    ${answer.victims?.length > 0 && html`<p>The node would terminate: <strong><bdi>${answer.victims.map(inert).join(', ')}</bdi></strong>.</p>`}
    ${answer.restarts?.length > 0 && html`<p>Would be restarted: <bdi>${answer.restarts.map(inert).join(', ')}</bdi>.</p>`}
    ${(answer.unsafe ?? []).map((each) => html`<p class="warn">Unsafe: <bdi>${inert(each.container)}</bdi> uses ${inert(each.used)} now, its new limit is ${inert(each.limit)}.</p>`)}
    ${(answer.largest ?? []).map((each) => html`<p class="small">The most ${inert(each.resource)} that fits: ${each.now ? html`<strong>${inert(each.now)}</strong> now` : 'nothing more now'}${each.ever ? html`, ${inert(each.ever)} on this node at all` : ''}.</p>`)}
    ${lists.map((text) => html`<p class="small">${inert(text)}</p>`)}
    ${answer.hint && html`<p class="small">${inert(answer.hint)}</p>`}`;
}
