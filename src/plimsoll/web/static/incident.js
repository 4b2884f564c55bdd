// An exported incident: the history is in this file, and there is no server.

import { html, render } from './ui.js';
import { inert } from './format.js';
import { Player } from './replay.js';

const place = document.getElementById('app');
const saved = JSON.parse(document.getElementById('history').textContent);
render(
  html`<main id="main"><h1>${inert(place.dataset.title)}</h1>${(saved.frames ?? []).length ? html`<${Player} name=${place.dataset.node} frames=${saved.frames} />` : html`<p class="card empty">The history was empty.</p>`}</main>`,
  place,
);
