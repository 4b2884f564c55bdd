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
    if (memory !== null) found.push({ kind, resource: 'memory', given: container[kind].memory, now: memory / MI, text: (value) => bytes(value * MI), quantity: (value) => `${value}Mi`, read: (text) => amount(quantityBytes(text), MI), step: 1 });
    if (cpu !== null) found.push({ kind, resource: 'cpu', given: container[kind].cpu, now: cpu, text: (value) => `${cores(value)} CPU`, quantity: (value) => `${value}m`, read: (text) => amount(quantityMilli(text), 1), step: 10 });
  }
  return found;
}

function amount(found, unit) {
  return found === null || !(found > 0) ? null : found / unit;
}

export function ResizePanel({ pod, name, who }) {
  const container = pod.containers.find((each) => each.name === name);
  const [values, setValues] = useState({});
  const [answer, setAnswer] = useState(null);
  const [busy, setBusy] = useState(false);
  const [sent, setSent] = useState('');
  const asking = useRef(0);
  const sliders = container ? slidersOf(container) : [];
  // What was dragged or typed: a quantity as text, which may be incomplete while it is typed.
  const typed = (each) => values[`${each.kind}.${each.resource}`];
  const changed = sliders.filter((each) => typed(each) !== undefined && each.read(typed(each)) !== null && each.read(typed(each)) !== each.now);
  const question = JSON.stringify(changed.map((each) => [each.kind, each.resource, typed(each)]));

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
      const text = values[key] ?? each.given;
      const value = each.read(text) ?? each.now;
      const least = Math.min(each.step, Math.ceil(each.now));
      const most = Math.max(Math.round(each.now * 4), each.step * 10);
      const set = (quantity) => { setSent(''); setValues({ ...values, [key]: quantity }); };
      const name = `${each.resource} ${each.kind === 'limits' ? 'limit' : 'request'}`;
      return html`<div class="slider" key=${key}>
        <div class="row"><label for=${key}>${name}</label><input type="text" class="amount" aria-label=${`${name} as a quantity`} aria-invalid=${each.read(text) === null} spellcheck="false" value=${text} onInput=${(event) => set(event.target.value)} /></div>
        <input id=${key} type="range" min=${least} max=${most} step=${each.now % each.step ? 1 : each.step} value=${Math.min(most, Math.max(least, value))} aria-valuetext=${each.text(value)}
          onInput=${(event) => set(each.quantity(Number(event.target.value)))} />
        ${value !== each.now && html`<div class="muted small">now ${each.text(each.now)}</div>`}
      </div>`;
    })}
    <div class=${`verdict ${answer?.outcome ?? ''}`} role="status" aria-live="polite" data-outcome=${answer && !busy ? answer.outcome : ''}>
      ${answer ? html`<${Verdict} answer=${answer} busy=${busy} name=${name} onUse=${(amounts) => { setSent(''); setValues({ ...values, ...Object.fromEntries(amounts.map(([, kind, resource, text]) => [`${kind}.${resource}`, text])) }); }} />` : html`<p class="muted">${busy ? 'Computing the forecast …' : sent || 'Drag to see what the node would answer. Nothing is sent before you commit.'}</p>`}
    </div>
    ${answer && sent && html`<p class="notice">${inert(sent)}</p>`}
    <button type="button" class="primary" disabled=${!allowed || busy} onClick=${commit}>Commit resize</button>
    ${' '}<button type="button" disabled=${!changed.length} onClick=${() => { setValues({}); setSent(''); }}>Discard</button>
    ${!who.mayResize && html`<p class="muted small">You may not resize pods.</p>`}
  </section>`;
}

// The amounts in a patch: [container, requests or limits, resource, quantity].
function nearestOf(patch) {
  const containers = [...(patch.spec?.initContainers ?? []), ...(patch.spec?.containers ?? [])];
  return containers.flatMap((each) => ['requests', 'limits'].flatMap((kind) => Object.entries(each.resources?.[kind] ?? {}).map(([resource, text]) => [each.name, kind, resource, String(text)])));
}

function Verdict({ answer, busy, name, onUse }) {
  const lists = [...(answer.errors ?? []), ...(answer.notes ?? [])];
  const room = answer.room;
  return html`<strong>${WORDS[answer.outcome] ?? inert(answer.outcome)}</strong>${busy && html`<span class="muted"> …</span>`}
    ${answer.message && html`<p>${inert(answer.message)}</p>`}
    ${room && html`<p>Short of ${Object.entries(room.short).map(([name, amount]) => `${inert(amount)} ${inert(name)}`).join(', ')}. ${room.pods?.length ? html`These pods would have to go: <strong data-go><bdi>${room.pods.map(inert).join(', ')}</bdi></strong>.` : 'Removing pods would not free enough.'}</p>`}
    ${answer.nearest && html`<p>Nearest valid request: <strong data-nearest>${nearestOf(answer.nearest).map(([container, kind, resource, text]) => `${container === name ? '' : `${inert(container)} `}${resource} ${kind === 'limits' ? 'limit' : 'request'} ${inert(text)}`).join(', ')}</strong> <button type="button" onClick=${() => onUse(nearestOf(answer.nearest).filter(([container]) => container === name))}>Use it</button></p>`}
    ${answer.victims?.length > 0 && html`<p>The node would terminate: <strong><bdi>${answer.victims.map(inert).join(', ')}</bdi></strong>.</p>`}
    ${answer.restarts?.length > 0 && html`<p>Would be restarted: <bdi>${answer.restarts.map(inert).join(', ')}</bdi>.</p>`}
    ${(answer.unsafe ?? []).map((each) => html`<p class="warn">Unsafe: <bdi>${inert(each.container)}</bdi> uses ${inert(each.used)} now, its new limit is ${inert(each.limit)}.</p>`)}
    ${(answer.largest ?? []).map((each) => html`<p class="small">The most ${inert(each.resource)} that fits: ${each.now ? html`<strong>${inert(each.now)}</strong> now` : 'nothing more now'}${each.ever ? html`, ${inert(each.ever)} on this node at all` : ''}.</p>`)}
    ${lists.map((text) => html`<p class="small">${inert(text)}</p>`)}
    ${answer.hint && html`<p class="small">${inert(answer.hint)}</p>`}`;
}
