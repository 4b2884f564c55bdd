// Explain: a pasted manifest or a part of one → its cgroups as a picture; two releases side by side; a link to share.
// The question is in the fragment of the link, so it is sent only to this server, and only when it is asked.

import { html, useEffect, useState } from './ui.js';
import { bytes, cores, inert, shortened } from './format.js';
import { posted } from './session.js';
import { Table, ViewHead } from './table.js';
import { HullLegend, Inspector, Tank, kernelLines } from './hull.js';

const EXAMPLE = `containers:
- name: app
  resources:
    requests: {cpu: 250m, memory: 256Mi}
    limits: {cpu: "1", memory: 512Mi}
- name: sidecar
  resources:
    requests: {cpu: 50m, memory: 64Mi}
`;
const PROFILES = ['documents', '1.27', '1.28', '1.29', '1.30', '1.31', '1.32', '1.33', '1.34', '1.35', '1.36', '1.37'];
const FIELDS = { manifest: EXAMPLE, profile: 'documents', second: '', cgroup: 'v2', driver: 'cgroupfs', runtime: 'containerd', cpu: '4', memory: '8Gi', featureGates: 'MemoryQoS=true' };

export function encodedQuestion(question) {
  const data = new TextEncoder().encode(JSON.stringify(question));
  let text = '';
  for (const byte of data) text += String.fromCharCode(byte);
  return btoa(text).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
}

export function decodedQuestion(text) {
  try {
    const raw = atob(text.replaceAll('-', '+').replaceAll('_', '/'));
    const found = JSON.parse(new TextDecoder().decode(Uint8Array.from(raw, (c) => c.charCodeAt(0))));
    return Object.fromEntries(Object.keys(FIELDS).map((name) => [name, typeof found[name] === 'string' ? found[name] : FIELDS[name]]));
  } catch {
    return null;
  }
}

export function ExplainView({ rest, table, onTable }) {
  const [question, setQuestion] = useState(() => (rest[0] && decodedQuestion(rest[0])) || FIELDS);
  const [answers, setAnswers] = useState(null);
  const [busy, setBusy] = useState(false);
  const [copied, setCopied] = useState('');
  const [inspected, setInspected] = useState(null);
  const set = (name) => (event) => setQuestion({ ...question, [name]: event.target.value });
  const run = async (asked) => {
    setBusy(true);
    setInspected(null);
    const profiles = [asked.profile, ...(asked.second && asked.second !== asked.profile ? [asked.second] : [])];
    const found = await Promise.all(profiles.map(async (profile) => {
      try {
        return { profile, ...(await posted('api/explain', { ...asked, second: undefined, profile })) };
      } catch (error) {
        return { profile, error: error.message };
      }
    }));
    setAnswers(found);
    setBusy(false);
  };
  useEffect(() => { run(question); }, []);
  const share = async () => {
    const link = `${location.origin}${location.pathname}#/explain/${encodedQuestion(question)}`;
    history.replaceState(null, '', link);
    try {
      await navigator.clipboard.writeText(link);
      setCopied('The link is copied; everything is in its fragment.');
    } catch {
      setCopied('The link is in the address bar; everything is in its fragment.');
    }
  };
  const choice = (name, text, options) => html`<label class="field">${text}<select value=${question[name]} onChange=${set(name)}>${options.map((each) => html`<option value=${each}>${each || 'none'}</option>`)}</select></label>`;
  return html`<${ViewHead} title="Explain" table=${table} onTable=${onTable} about="Paste a pod, a workload, or a part of one: missing names and images are assumed, and notes say which." />
    <div class="two">
      <section class="card">
        <label class="field">Manifest<textarea spellcheck="false" value=${question.manifest} onInput=${set('manifest')} aria-label="Manifest"></textarea></label>
      </section>
      <section class="card">
        <div class="form-grid">
          ${choice('profile', 'Kubernetes release', PROFILES)}${choice('second', 'beside it', ['', ...PROFILES])}
          <label class="field">Node CPUs<input type="text" value=${question.cpu} onInput=${set('cpu')} /></label>
          <label class="field">Node memory<input type="text" value=${question.memory} onInput=${set('memory')} /></label>
          ${choice('cgroup', 'Cgroup version', ['v2', 'v1'])}${choice('driver', 'Cgroup driver', ['cgroupfs', 'systemd'])}${choice('runtime', 'Runtime', ['containerd', 'crio', 'process'])}
          <label class="field">Feature gates<input type="text" value=${question.featureGates} onInput=${set('featureGates')} /></label>
        </div>
        <p><button type="button" class="primary" disabled=${busy} onClick=${() => run(question)}>Explain</button> <button type="button" onClick=${share}>Share as link</button></p>
        ${copied && html`<p class="small" role="status">${copied}</p>`}
        <${HullLegend} />
      </section>
    </div>
    ${answers && html`<div class="two">${answers.map((each) => html`<${Answer} key=${each.profile} answer=${each} table=${table} inspected=${inspected} onInspect=${setInspected} />`)}</div>`}
    ${inspected && !table && html`<${Inspector} vessel=${inspected} row=${null} />`}`;
}

const LEVELS = { pods: 'all pods', class: 'QoS class', pod: 'pod', container: 'container' };

function Answer({ answer, table, inspected, onInspect }) {
  const vessels = [];
  const walk = (vessel, depth) => {
    vessels.push({ id: vessel.path + depth, vessel, depth });
    for (const child of vessel.children ?? []) walk(child, depth + 1);
  };
  for (const vessel of answer.picture?.vessels ?? []) walk(vessel, 0);
  return html`<section class="card" data-explained=${answer.profile}>
    <h2>Release ${inert(answer.profile)}</h2>
    ${answer.error && html`<p class="notice bad">${inert(answer.error)}</p>`}
    ${(answer.problems ?? []).map((text) => html`<p class="notice bad">${inert(text)}</p>`)}
    ${(answer.notes ?? []).map((text) => html`<p class="small muted">${inert(text)}</p>`)}
    ${(answer.pods ?? []).map((pod) => html`<p><strong><bdi>${inert(pod.name)}</bdi></strong> is <strong>${inert(pod.qosClass)}</strong>: ${inert(pod.because)}</p>`)}
    ${table ? html`<${ExplainTable} vessels=${vessels} />` : html`<div class="picture-tree">${vessels.map(({ id, vessel, depth }) => html`<div class="level" key=${id} data-depth=${depth}>
      <div class="small muted">${LEVELS[vessel.level] ?? inert(vessel.level)}</div>
      <div><strong><bdi>${shortened(vessel.name, 30)}</bdi></strong></div>
      <${Tank} vessel=${vessel} row=${null} width=${168} height=${132} labels=${true} amounts=${true} bare=${true} pressed=${inspected === vessel} onInspect=${(each) => onInspect(each)} />
      <div class="text">
        ${kernelLines(vessel, null).filter((line) => !line.of).map((line) => html`<div class="small"><span class=${`line-word ${line.name}`}>${line.name}</span> <strong>${bytes(line.at)}</strong> <span class="muted mono formula">${inert(line.formula ?? '')}</span></div>`)}
        ${vessel.cpu && html`<div class="small muted">CPU ${vessel.cpu.quotaMilli != null ? `at most ${cores(vessel.cpu.quotaMilli)}` : 'without limit'}${vessel.cpu.worstCaseMilli != null ? `, at least ${cores(vessel.cpu.worstCaseMilli)} when all compete` : ''}</div>`}
        ${vessel.oomScoreAdj != null && html`<div class="small muted">oom_score_adj ${vessel.oomScoreAdj}</div>`}
      </div></div>`)}</div>`}
  </section>`;
}

function ExplainTable({ vessels }) {
  const line = (name) => ({ vessel }) => {
    const found = kernelLines(vessel, null).find((each) => each.name === name && !each.of);
    return found ? bytes(found.at) : '–';
  };
  const number = { number: true };
  return html`<${Table} caption="Cgroups and their values" empty="Nothing to explain." rows=${vessels} columns=${[
    ['Cgroup', ({ vessel }) => vessel.name], ['Level', ({ vessel }) => vessel.level],
    ['min', line('min'), number], ['low', line('low'), number], ['high', line('high'), number], ['max', line('max'), number],
    ['CPU limit', ({ vessel }) => cores(vessel.cpu?.quotaMilli ?? -1), number], ['CPU worst case', ({ vessel }) => cores(vessel.cpu?.worstCaseMilli ?? -1), number],
    ['oom_score_adj', ({ vessel }) => (vessel.oomScoreAdj != null ? String(vessel.oomScoreAdj) : '–'), number], ['Path', ({ vessel }) => vessel.path],
  ]} />`;
}
