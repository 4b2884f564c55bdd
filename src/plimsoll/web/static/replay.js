// Replay: the history of a node, frame by frame. The same view is in an exported incident.

import { html, useEffect, useMemo, useState } from './ui.js';
import { clockTime, count, inert, seconds } from './format.js';
import { NodeState } from './state.js';
import { ask, asked } from './session.js';
import { ViewHead } from './table.js';
import { Hull } from './hull.js';
import { MARKS, MarkList } from './marks.js';

// The state after the frames up to `index`, from the last complete one.
export function stateAt(name, frames, index) {
  let first = index;
  while (first > 0 && frames[first].since) first -= 1;
  const state = new NodeState(name);
  for (let place = first; place <= index; place += 1) state.apply(frames[place]);
  state.marks = frames.slice(0, index + 1).flatMap((frame) => frame.since === undefined || frame.since === 0 ? [] : (frame.marks ?? []));
  for (const frame of frames.slice(0, 1)) state.marks = [...(frame.marks ?? []), ...state.marks];
  return state;
}

export function allMarks(frames) {
  return frames.flatMap((frame, index) => (index > 0 && !frame.since ? [] : (frame.marks ?? [])));
}

export function Player({ name, frames, head }) {
  const [chosen, choose] = useState(null); // null: the newest frame, also after more are loaded
  const [playing, setPlaying] = useState(false);
  const [table, setTable] = useState(false);
  const last = frames.length - 1;
  const place = Math.min(chosen ?? last, last);
  const setIndex = (index) => choose(index >= last ? null : Math.max(0, index));
  useEffect(() => {
    if (!playing) return undefined;
    const timer = setTimeout(() => (place >= last ? setPlaying(false) : setIndex(place + 1)), 250);
    return () => clearTimeout(timer);
  }, [playing, place, frames]);
  const state = useMemo(() => stateAt(name, frames, place), [frames, place]);
  const marks = useMemo(() => allMarks(frames), [frames]);
  const [from, to] = [frames[0].at, frames.at(-1).at];
  const x = (at) => (to > from ? (1000 * (at - from)) / (to - from) : 500);
  const jump = (at) => {
    const found = frames.findIndex((frame) => frame.at >= at);
    setIndex(found < 0 ? last : found);
  };
  return html`<section class="card" data-player data-frame=${place}>
      <div class="bar" style=${{ padding: 0 }}>
        <button type="button" onClick=${() => { if (place >= last) choose(0); setPlaying(!playing); }}>${playing ? 'Pause' : 'Play'}</button>
        <button type="button" aria-label="Back one frame" onClick=${() => setIndex(place - 1)}>◀</button>
        <button type="button" aria-label="Forward one frame" onClick=${() => setIndex(place + 1)}>▶</button>
        <strong data-at=${frames[place].at}>${clockTime(frames[place].at)}</strong>
        <span class="muted small">${count(frames.length, 'frame')} over ${seconds(to - from)}</span>
        <span class="spacer"></span>${head}
      </div>
      <svg class="timeline" viewBox="0 0 1000 46" preserveAspectRatio="none" aria-hidden="true">
        <rect class="cpu-ground" x="0" y="18" width="1000" height="12" rx="3" />
        ${marks.map((mark) => html`<path class=${`line ${{ oom: 'max', eviction: 'max', resize: 'min' }[mark.kind] ?? 'high'}`} d=${`M${x(mark.at)} 8 V40`}><title>${inert(`${MARKS[mark.kind]?.[1]} ${mark.text}`)}</title></path>`)}
        <path class="cpu-quota" d=${`M${x(frames[place].at)} 0 V46`} />
      </svg>
      <label class="visually-hidden" for="moment">Moment</label>
      <input id="moment" type="range" min="0" max=${last} value=${place} aria-valuetext=${clockTime(frames[place].at)} onInput=${(event) => { setPlaying(false); setIndex(Number(event.target.value)); }} />
      ${marks.length > 0 && html`<div class="chips">${marks.slice(-12).map((mark) => html`<button type="button" class="chip" onClick=${() => jump(mark.at)}>${MARKS[mark.kind]?.[0]} ${clockTime(mark.at)} ${inert(mark.pod ?? '')}</button>`)}</div>`}
    </section>
    <${Hull} state=${state} table=${table} onTable=${setTable} />
    <section class="card"><h2>What happened until then</h2><${MarkList} marks=${state.marks} /></section>`;
}

export function ReplayView({ state }) {
  const [page, setPage] = useState(null);
  const [error, setError] = useState('');
  const [minutes, setMinutes] = useState('30');
  const [saved, setSaved] = useState('');
  const name = state.name;
  const query = () => new URLSearchParams({ node: name, ...(minutes ? { from: String(Date.now() / 1000 - 60 * Number(minutes)) } : {}) });
  const load = async () => {
    setError('');
    try {
      const found = [];
      let from = minutes ? Date.now() / 1000 - 60 * Number(minutes) : 0;
      for (;;) {
        const part = await asked(`api/history?${new URLSearchParams({ node: name, from: String(from) })}`);
        const last = found.at(-1)?.at ?? -1;
        found.push(...(part.frames ?? []).filter((frame) => frame.at > last));
        if (!part.more) break;
        from = found.at(-1).at;
      }
      setPage(found);
    } catch (problem) {
      setError(problem.message);
    }
  };
  useEffect(() => { load(); }, [name, minutes]);
  const save = async () => {
    const answer = await ask(`api/incident?${query()}`);
    if (!answer.ok) {
      setError(`HTTP ${answer.status}`);
      return;
    }
    const link = document.createElement('a');
    link.href = URL.createObjectURL(await answer.blob());
    link.download = `incident-${name}.html`;
    link.click();
    URL.revokeObjectURL(link.href);
    setSaved('Saved: one file with everything in it, which opens without a network.');
  };
  const controls = html`<label class="small">Last <select value=${minutes} onChange=${(event) => setMinutes(event.target.value)}>
      <option value="5">5 minutes</option><option value="30">30 minutes</option><option value="120">2 hours</option><option value="">everything</option></select></label>
    <button type="button" onClick=${load}>Load again</button> <button type="button" class="primary" onClick=${save}>Save incident</button>`;
  return html`<${ViewHead} title="Replay" about="The node keeps its last minutes in memory, in a ring of a few megabytes. Scroll back to any moment, or save an incident as one HTML file." />
    ${error && html`<p class="notice bad">${inert(error)}</p>`}${saved && html`<p class="notice good" role="status">${saved}</p>`}
    ${page === null ? html`<p class="card empty">Loading the history …</p>` : page.length ? html`<${Player} key=${name} name=${name} frames=${page} head=${controls} />` : html`<section class="card"><p class="empty">No history yet: the node keeps a frame every ten seconds.</p>${controls}</section>`}`;
}
