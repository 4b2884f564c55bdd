// The state of the dashboard: frames of a node folded one after the other, and the objects of the cluster.
// The same folding serves the live stream, the history and an exported incident.

export const COLUMNS = [
  'usage', 'anon', 'shmem', 'kernel', 'activeFile', 'inactiveFile', 'max', 'high', 'low', 'min', 'cpuMilli', 'quotaMilli',
  'weight', 'periods', 'throttledPeriods', 'throttledUs', 'oomKills', 'pids', 'pidsMax', 'memoryStall', 'cpuStall',
  'ioStall',
];
export const COLUMN = Object.fromEntries(COLUMNS.map((name, index) => [name, index]));
const MOST_POINTS = 900;
const MOST_MARKS = 500;

export class NodeState {
  constructor(name) {
    this.name = name;
    this.problem = '';
    this.at = 0;
    this.clear();
  }

  clear() {
    this.node = null;
    this.vessels = new Map();
    this.rows = new Map();
    this.orders = null;
    this.marks = [];
    this.version = (this.version ?? 0) + 1; // of the vessels: their order and their lines
  }

  // Returns the marks that are new.
  apply(frame) {
    if (frame.problem !== undefined && frame.seq === undefined) {
      this.problem = frame.problem;
      return [];
    }
    this.problem = '';
    const known = frame.since ? null : new Set(this.marks.map(markKey));
    if (!frame.since) this.clear();
    this.at = frame.at;
    this.gone = [];
    for (const id of frame.gone ?? []) {
      if (this.vessels.has(id)) this.gone.push(seriesKey(this.vessels.get(id)));
      this.vessels.delete(id);
      this.rows.delete(id);
      this.version += 1;
    }
    for (const vessel of frame.vessels ?? []) {
      this.vessels.set(vessel.id, vessel);
      this.version += 1;
    }
    for (const [id, row] of Object.entries(frame.rows ?? {})) this.rows.set(id, row);
    if (frame.node) this.node = frame.node;
    if (frame.orders) this.orders = foldedOrders(this.orders ?? {}, frame.orders);
    const marks = frame.marks ?? [];
    this.marks = [...this.marks, ...marks].slice(-MOST_MARKS);
    return known === null ? marks : marks.filter((mark) => known.size > 0 && !known.has(markKey(mark)));
  }

  figure(id, column) {
    const row = this.rows.get(id);
    return row ? row[COLUMN[column]] : -1;
  }

  workingSet(id) {
    const usage = this.figure(id, 'usage');
    return usage < 0 ? -1 : Math.max(0, usage - Math.max(0, this.figure(id, 'inactiveFile')));
  }

  // Indexed once for each change of the vessels: a picture of many pods asks for each of them.
  children(id) {
    if (this.indexed !== this.version) {
      this.below = new Map();
      for (const vessel of this.vessels.values()) {
        const siblings = this.below.get(vessel.parent);
        if (siblings) siblings.push(vessel);
        else this.below.set(vessel.parent, [vessel]);
      }
      this.indexed = this.version;
    }
    return this.below.get(id) ?? [];
  }

  podVessel(uid) {
    for (const vessel of this.vessels.values()) if (vessel.level === 'pod' && vessel.uid === uid) return vessel;
    return null;
  }
}

// An entry that has not changed is only named.
function foldedOrders(known, changed) {
  const folded = {};
  for (const [name, entries] of Object.entries(changed)) {
    const byId = new Map((known[name] ?? []).map((each) => [each.id, each]));
    folded[name] = entries.map((each) => (typeof each === 'string' ? byId.get(each) : each)).filter(Boolean);
  }
  return folded;
}

function markKey(mark) {
  return `${mark.at} ${mark.kind} ${mark.text}`;
}

// A container that is started again has another cgroup; in a chart it is the same line.
export function seriesKey(vessel) {
  return vessel.uid ? `${vessel.uid}/${vessel.level === 'container' ? vessel.name : ''}` : vessel.path;
}

// Readings over time, as columns for a chart. A row is kept once for as long as it does not change.
export class Series {
  constructor() {
    this.at = [];
    this.first = 0; // the number of the first point
    this.readings = new Map(); // key → [[number of the point from which on, row or null], …]
  }

  // `changed`: ids of the rows that a frame has changed; null where it was complete.
  add(state, changed, gone = []) {
    const last = this.at.at(-1);
    if (last !== undefined && state.at <= last) return;
    const number = this.first + this.at.length;
    this.at.push(state.at);
    const keys = new Set();
    for (const id of changed ?? state.rows.keys()) {
      const vessel = state.vessels.get(id);
      if (!vessel) continue;
      const key = seriesKey(vessel);
      keys.add(key);
      this.put(key, number, state.rows.get(id));
    }
    for (const key of changed ? gone : this.readings.keys()) if (!keys.has(key)) this.put(key, number, null);
    if (this.at.length > MOST_POINTS) {
      this.at.shift();
      this.first += 1;
      if (this.first % 100 === 0) this.prune();
    }
  }

  put(key, number, row) {
    const entries = this.readings.get(key);
    if (!entries) {
      if (row) this.readings.set(key, [[number, row]]);
    } else if (entries.at(-1)[1] !== row) {
      entries.push([number, row]);
    }
  }

  prune() {
    for (const [key, entries] of this.readings) {
      const begins = entries.findLastIndex(([number]) => number <= this.first);
      if (begins > 0) entries.splice(0, begins);
      if (entries.length === 1 && entries[0][1] === null) this.readings.delete(key);
    }
  }

  // What was before: the points of an earlier series.
  prepend(past) {
    const first = this.at[0] ?? Infinity;
    const length = past.at.filter((at) => at < first).length;
    const moved = new Map();
    for (const [key, entries] of past.readings) {
      const kept = entries.map(([number, row]) => [number - past.first, row]).filter(([number]) => number < length);
      if (kept.length) moved.set(key, [...kept, ...(this.readings.has(key) ? [] : [[length, null]])]);
    }
    for (const [key, entries] of this.readings) {
      moved.set(key, [...(moved.get(key) ?? []), ...entries.map(([number, row]) => [Math.max(0, number - this.first) + length, row])]);
    }
    this.at = [...past.at.slice(0, length), ...this.at];
    this.first = 0;
    this.readings = moved;
  }

  times() {
    return this.at;
  }

  // The row of each point; null where there was none.
  rows(key) {
    const found = new Array(this.at.length).fill(null);
    const entries = this.readings.get(key) ?? [];
    entries.forEach(([number, row], index) => {
      const to = Math.min((entries[index + 1]?.[0] ?? Infinity) - this.first, found.length);
      for (let place = Math.max(0, number - this.first); place < to; place += 1) found[place] = row;
    });
    return found;
  }

  column(key, name) {
    const index = COLUMN[name];
    return this.rows(key).map((row) => (row && row[index] >= 0 ? row[index] : null));
  }

  // Growth per second of a counter.
  rate(key, name) {
    const index = COLUMN[name];
    const rows = this.rows(key);
    return rows.map((row, place) => {
      const old = place > 0 ? rows[place - 1] : null;
      if (!row || !old || row[index] < 0 || old[index] < 0 || row[index] < old[index]) return null;
      return (row[index] - old[index]) / (this.at[place] - this.at[place - 1]);
    });
  }
}

export function seriesOf(frames) {
  const state = new NodeState('');
  const series = new Series();
  for (const frame of frames) {
    state.apply(frame);
    series.add(state, changedBy(frame), state.gone);
  }
  return series;
}

// The ids of the rows that a frame changes; null where it is complete.
export function changedBy(frame) {
  return frame.since ? Object.keys(frame.rows ?? {}) : null;
}
