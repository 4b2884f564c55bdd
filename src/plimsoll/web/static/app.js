// The shell: login, the stream, the views and what they share.

import { html, render, Component } from './ui.js';
import { inert } from './format.js';
import { NodeState, Series, changedBy, seriesOf } from './state.js';
import { asked, forget, keep, login, logout } from './session.js';
import { Stream } from './stream.js';
import { markSentence } from './marks.js';
import { NodeView } from './node.js';
import { Hull } from './hull.js';
import { PodView, PodList } from './pod.js';
import { NextView } from './next.js';
import { ExplainView } from './explain.js';
import { FleetView } from './fleet.js';
import { ReplayView } from './replay.js';

const VIEWS = [
  ['node', 'Node'],
  ['hull', 'Hull'],
  ['pod', 'Pods'],
  ['next', 'Eviction and OOM order'],
  ['explain', 'Explain'],
  ['fleet', 'Fleet'],
  ['replay', 'Replay'],
];
const THEMES = { auto: 'Theme: system', light: 'Theme: light', dark: 'Theme: dark' };

// #/pod/default/web?table → { view: 'pod', rest: ['default', 'web'] }
function routeOf(hash) {
  const [path] = hash.replace(/^#\/?/, '').split('?');
  const parts = path.split('/').map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  const view = VIEWS.some(([name]) => name === parts[0]) ? parts[0] : 'hull';
  return { view, rest: view === parts[0] ? parts.slice(1) : [] };
}

class App extends Component {
  constructor() {
    super();
    this.theme = localStorage.getItem('plimsoll.theme') ?? 'auto';
    this.applyTheme();
    this.state = { phase: 'start', route: routeOf(location.hash), tables: {}, spoken: '' };
    this.node = new NodeState('');
    this.series = new Series();
    this.objects = { pods: new Map(), nodes: new Map(), events: new Map(), version: 0 };
    this.fleet = new Map();
    this.connection = { state: 'connecting' };
    this.scriptMs = []; // how long each update took; for measurements
    this.pending = false;
    addEventListener('hashchange', () => this.setState({ route: routeOf(location.hash) }));
    this.begin();
  }

  async begin() {
    if (document.documentElement.dataset.start) return; // `start` loads the page again; a code works only once
    document.documentElement.dataset.start = 'done';
    sessionStorage.removeItem('plimsoll.starts');
    try {
      const who = await login();
      if (who === null) this.setState({ phase: 'login' });
      else if (who.missing.length) this.setState({ phase: 'login', error: who.missing[0] });
      else this.start(who);
    } catch (error) {
      forget();
      this.setState({ phase: 'login', error: error.message });
    }
  }

  start(who) {
    this.who = who;
    this.setState({ phase: 'ready', route: routeOf(location.hash) });
    this.connect(new URLSearchParams(location.search).get('node') ?? '');
  }

  connect(node) {
    this.stream?.close();
    this.node = new NodeState(node);
    this.series = new Series();
    const stream = new Stream(node, (message) => this.take(message), (state, reason, code) => this.status(stream, state, reason, code));
    this.stream = stream;
    stream.run();
  }

  status(stream, state, reason, code) {
    if (stream && stream !== this.stream) return;
    if (state === 'refused' && code === 401) {
      forget();
      this.stream = null;
      this.setState({ phase: 'login', error: 'The session has ended: open a new link with plimsoll dashboard.' });
      return;
    }
    if (this.connection.state === state) return;
    if (state === 'lost') this.speak(`Connection lost: ${reason}`);
    if (state === 'open' && this.connection.state !== 'open' && this.wasLost) this.speak('Connected again');
    this.wasLost = this.wasLost || state === 'lost';
    if (state === 'connecting' && this.wasLost) return;
    this.connection = { state, reason };
    this.update();
  }

  take(message) {
    const began = performance.now();
    if (message.kind === 'snapshot') {
      for (const kind of ['pods', 'nodes', 'events']) this.objects[kind] = new Map(Object.entries(message.objects[kind]));
      this.objects.version += 1;
      this.fleet = new Map(Object.entries(message.fleet));
      this.node.name = message.name;
      this.node.problem = message.problem;
      if (message.frame) this.frame(message.frame);
      if (!this.loaded) this.loadHistory();
    } else if (message.topic === 'objects') {
      for (const kind of ['pods', 'nodes', 'events']) {
        for (const [key, shown] of Object.entries(message.data[kind] ?? {})) this.objects[kind].set(key, shown);
        for (const key of message.data[`${kind}Gone`] ?? []) this.objects[kind].delete(key);
      }
      this.objects.version += 1;
    } else if (message.topic === 'fleet') {
      for (const [name, facts] of Object.entries(message.data.nodes)) this.fleet.set(name, facts);
      for (const name of message.data.gone) this.fleet.delete(name);
    } else {
      this.frame(message.data);
    }
    this.update(performance.now() - began);
  }

  frame(frame) {
    const before = this.node.node?.conditions ?? [];
    for (const mark of this.node.apply(frame)) this.speak(markSentence(mark));
    for (const name of this.node.node?.conditions ?? []) if (!before.includes(name)) this.speak(`The node is under ${name}`);
    if (frame.seq !== undefined) this.series.add(this.node, changedBy(frame), this.node.gone);
  }

  // What was before this tab: charts begin with the ring of the node.
  async loadHistory() {
    this.loaded = true;
    const state = this.node;
    try {
      const page = await asked(`api/history?${new URLSearchParams({ node: state.name, from: String(Math.max(0, Date.now() / 1000 - 1800)) })}`);
      if (state !== this.node) return;
      const past = seriesOf(page.frames ?? []);
      this.series.prepend(past);
      this.update();
    } catch {
      // a kubelet has no history; charts begin now
    }
  }

  speak(text) {
    this.setState({ spoken: text });
  }

  update(took = 0) {
    this.took = (this.took ?? 0) + took;
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      const began = performance.now();
      this.setState({ tick: (this.state.tick ?? 0) + 1 }, () => {
        this.scriptMs.push(performance.now() - began + this.took);
        if (this.scriptMs.length > 1000) this.scriptMs.shift();
        this.took = 0;
      });
    });
  }

  applyTheme() {
    if (this.theme === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = this.theme;
  }

  nextTheme() {
    const names = Object.keys(THEMES);
    this.theme = names[(names.indexOf(this.theme) + 1) % names.length];
    localStorage.setItem('plimsoll.theme', this.theme);
    this.applyTheme();
    this.forceUpdate();
  }

  go(path) {
    location.hash = `#/${path.split('/').map(encodeURIComponent).join('/')}`;
  }

  chooseNode(name) {
    this.loaded = false;
    this.connect(name);
    this.update();
  }

  render(_, { phase, error, route, tables, spoken }) {
    if (phase === 'start') return html`<p class="loading">Connecting …</p>`;
    if (phase === 'login') return html`<${Login} error=${error} onToken=${(text) => { keep(text); this.setState({ error: '' }); this.begin(); }} />`;
    const { view, rest } = route;
    const table = Boolean(tables[view]);
    const shared = {
      state: this.node, series: this.series, objects: this.objects, fleet: this.fleet, who: this.who, rest, table,
      go: (path) => this.go(path), chooseNode: (name) => this.chooseNode(name),
      onTable: (shown) => this.setState({ tables: { ...tables, [view]: shown } }),
    };
    const Shown = { node: NodeView, hull: Hull, pod: rest.length >= 2 ? PodView : PodList, next: NextView, explain: ExplainView, fleet: FleetView, replay: ReplayView }[view];
    document.title = `${VIEWS.find(([name]) => name === view)[1]} · Plimsoll`;
    return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById('main').focus(); }}>Skip to the content</a>
      <header class="top">
        <div class="bar">
          <span class="brand"><svg viewBox="0 0 32 32" aria-hidden="true"><circle cx="16" cy="16" r="9.5" fill="none" stroke="var(--anon)" stroke-width="3" /><path d="M2 16h28" stroke="var(--max)" stroke-width="3" /></svg>Plimsoll</span>
          <label class="small">Node <select value=${this.node.name} onChange=${(event) => this.chooseNode(event.target.value)}>
            ${[...this.objects.nodes.values()].map((node) => html`<option value=${node.name}>${inert(node.name)}</option>`)}
          </select></label>
          <span class="spacer"></span>
          <${Connection} connection=${this.connection} />
          <button type="button" onClick=${() => this.nextTheme()}>${THEMES[this.theme]}</button>
          <button type="button" onClick=${async () => { this.stream?.close(); await logout(); this.setState({ phase: 'login', error: '' }); }} title=${inert(this.who.user)}>Log out</button>
        </div>
        <nav class="views" aria-label="Views">
          ${VIEWS.map(([name, text]) => html`<a href=${`#/${name}`} aria-current=${name === view ? 'page' : undefined}>${text}</a>`)}
        </nav>
      </header>
      <main id="main" tabindex="-1"><${Shown} ...${shared} key=${`${view}/${rest.join('/')}`} /></main>
      <div class="visually-hidden" role="status" aria-live="polite" id="spoken">${spoken}</div>`;
  }
}

function Connection({ connection }) {
  const text = { open: 'live', connecting: 'connecting …', lost: 'connection lost, trying again', refused: `refused: ${connection.reason}` }[connection.state];
  return html`<span class="status" data-connection=${connection.state} title=${inert(connection.reason ?? '')}><i class=${`dot ${connection.state}`}></i>${inert(text)}</span>`;
}

function Login({ error, onToken }) {
  const submit = (event) => {
    event.preventDefault();
    onToken(new FormData(event.target).get('token'));
  };
  return html`<main class="login card">
    <h1>Plimsoll dashboard</h1>
    ${error && html`<p class="notice bad" role="alert">${inert(error)}</p>`}
    <p>Open a one-time link:</p>
    <p><code>plimsoll dashboard</code></p>
    <form onSubmit=${submit}>
      <label class="field">Or paste a bearer token <input type="password" name="token" autocomplete="off" required spellcheck="false" /></label>
      <p class="muted small">It is kept in this tab only and sent as a header, never in an address.</p>
      <button class="primary" type="submit">Log in</button>
    </form>
  </main>`;
}

const mounted = document.getElementById('app');
mounted.textContent = '';
render(html`<${App} ref=${(app) => { globalThis.plimsollDashboard = app; }} />`, mounted);
