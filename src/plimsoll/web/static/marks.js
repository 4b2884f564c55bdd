// Marks: what happened at a moment, as badges, as a list and as the sentence that a screen reader speaks.

import { html } from './ui.js';
import { clockTime, inert, shortened } from './format.js';

export const MARKS = {
  oom: ['✕', 'OOM kill'],
  eviction: ['↗', 'eviction'],
  restart: ['↻', 'restart'],
  resize: ['↕', 'resize'],
  throttling: ['‖', 'throttled'],
  stall: ['‖', 'stalled'],
  repair: ['✓', 'repaired'],
  event: ['!', 'event'],
};
const RECENT_S = 20;

export function MarkBadge({ mark }) {
  const [sign, word] = MARKS[mark.kind] ?? MARKS.event;
  return html`<span class=${`badge ${mark.kind}`} title=${inert(mark.text)} data-mark=${mark.kind}><span aria-hidden="true">${sign}</span>${word}${mark.step ? ` T${mark.step.number}` : ''}</span>`;
}

// Pod uid → its newest mark, for a short while.
export function recentMarks(state) {
  const found = new Map();
  for (const mark of state.marks) if (mark.uid && state.at - mark.at < RECENT_S) found.set(mark.uid, mark);
  return found;
}

// What stands at a mark on a time axis: the number of a step, or a sign.
export function markSign(mark) {
  return mark.step ? `T${mark.step.number}` : (MARKS[mark.kind]?.[0] ?? '!');
}

export function markSentence(mark) {
  const where = [mark.namespace, mark.pod].filter(Boolean).join('/');
  const [, word] = MARKS[mark.kind] ?? MARKS.event;
  return inert(`${word}${where ? ` of ${where}` : ''}${mark.container ? ` ${mark.container}` : ''}: ${mark.text}`);
}

export function MarkList({ marks, empty = 'Nothing has happened yet.', most = 60 }) {
  if (!marks.length) return html`<p class="empty">${empty}</p>`;
  const newest = marks.slice(-most).reverse();
  return html`<ul class="marks" tabindex="0" aria-label="What happened, newest first">
    ${newest.map((mark) => html`<li key=${`${mark.at}${mark.text}`} data-mark-kind=${mark.kind}>
      <time class="muted" datetime=${new Date(mark.at * 1000).toISOString()}>${clockTime(mark.at)}</time>
      <${MarkBadge} mark=${mark} />
      <span>${mark.pod && html`<strong><bdi>${shortened(mark.pod, 32)}${mark.container ? ` / ${shortened(mark.container, 20)}` : ''}</bdi></strong> `}<bdi>${inert(mark.text)}</bdi></span>
    </li>`)}
  </ul>`;
}
