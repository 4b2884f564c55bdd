// A view as a table: the same data for screen readers, for copying and for people who prefer numbers.

import { html } from './ui.js';
import { inert } from './format.js';

// `columns`: [title, cell(row), options]; a cell is text, a number or an element.
export function Table({ caption, columns, rows, empty = 'Nothing to show.' }) {
  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}>
    <table data-twin>
      <caption>${caption}</caption>
      <thead><tr>${columns.map(([title, , how]) => html`<th scope="col" class=${how?.number ? 'num' : ''}>${title}</th>`)}</tr></thead>
      <tbody>
        ${rows.map((row, index) => html`<tr key=${row.id ?? index} data-id=${row.id ?? ''}>
          ${columns.map(([, cell, how], place) => {
            const value = cell(row);
            const shown = typeof value === 'string' ? html`<bdi>${inert(value)}</bdi>` : value;
            return place === 0
              ? html`<th scope="row">${shown}</th>`
              : html`<td class=${how?.number ? 'num' : how?.wide ? '' : typeof value === 'string' && value.length < 24 ? 'short' : ''} data-column=${how?.name ?? ''}>${shown}</td>`;
          })}
        </tr>`)}
      </tbody>
    </table>
  </div>`;
}

// The heading of a view with the switch between its picture and its table.
export function ViewHead({ title, about, table, onTable, children }) {
  return html`<div class="head">
    <h1>${title}</h1>
    <span class="spacer"></span>
    ${children}
    ${onTable &&
    html`<button type="button" aria-pressed=${table} onClick=${() => onTable(!table)}>
      ${table ? 'Show as picture' : 'Show as table'}
    </button>`}
    ${about && html`<p class="muted small">${about}</p>`}
  </div>`;
}
