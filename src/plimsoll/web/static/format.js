// Numbers with units, and texts of the cluster made inert.
// Preact escapes HTML. Control characters and marks that reverse the direction of text are shown as visible escapes.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

export function inert(text) {
  return String(text ?? '').replace(HIDDEN, (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
}

export function shortened(text, most = 60) {
  const shown = inert(text);
  return shown.length <= most ? shown : shown.slice(0, most - 12) + '…' + shown.slice(-11);
}

export function bytes(amount) {
  if (amount === null || amount === undefined || amount < 0) return '–';
  let power = 0;
  while (amount >= 1024 && power < UNITS.length - 1) {
    amount /= 1024;
    power += 1;
  }
  const digits = power === 0 || amount >= 100 ? 0 : amount >= 10 ? 1 : 2;
  return `${trimmed(amount.toFixed(digits))} ${UNITS[power]}`;
}

export function signedBytes(amount) {
  return amount < 0 ? `−${bytes(-amount)}` : bytes(amount);
}

export function cores(milli) {
  if (milli === null || milli === undefined || milli < 0) return '–';
  return milli < 1000 ? `${Math.round(milli)}m` : trimmed((milli / 1000).toFixed(2));
}

export function percent(part, whole) {
  if (!(whole > 0) || part < 0) return '–';
  const share = (100 * part) / whole;
  return `${share > 0 && share < 1 ? '<1' : Math.round(share)} %`;
}

export function seconds(amount) {
  if (amount === null || amount === undefined || amount < 0) return '–';
  if (amount < 1) return `${Math.round(amount * 1000)} ms`;
  if (amount < 90) return `${Math.round(amount)} s`;
  if (amount < 5400) return `${Math.round(amount / 60)} min`;
  if (amount < 172800) return `${Math.round(amount / 3600)} h`;
  return `${Math.round(amount / 86400)} d`;
}

export function clockTime(at) {
  return new Date(at * 1000).toLocaleTimeString([], { hour12: false });
}

export function count(amount, word) {
  return `${amount} ${word}${amount === 1 ? '' : 's'}`;
}

function trimmed(text) {
  return text.includes('.') ? text.replace(/\.?0+$/, '') : text;
}

// A Kubernetes quantity in bytes or in thousandths of a CPU.
const FACTORS = { '': 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, Ki: 1024, Mi: 1024 ** 2, Gi: 1024 ** 3, Ti: 1024 ** 4 };

export function quantityBytes(text) {
  const found = /^([0-9.]+)(m|k|M|G|T|P|Ki|Mi|Gi|Ti)?$/.exec(text ?? '');
  if (!found) return null;
  return found[2] === 'm' ? Number(found[1]) / 1000 : Number(found[1]) * FACTORS[found[2] ?? ''];
}

export function quantityMilli(text) {
  const found = /^([0-9.]+)(m)?$/.exec(text ?? '');
  return found ? (found[2] ? Number(found[1]) : Number(found[1]) * 1000) : null;
}
