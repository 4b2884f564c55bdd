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
    for (const id of frame.gone ?? []) {
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
    if (frame.orders) this.orders = frame.orders;
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

function markKey(mark) {
  return `${mark.at} ${mark.kind} ${mark.text}`;
}

// A container that is started again has another cgroup; in a chart it is the same line.
export function seriesKey(vessel) {
  return vessel.uid ? `${vessel.uid}/${vessel.level === 'container' ? vessel.name : ''}` : vessel.path;
}

// Points over time, as columns for a chart.
export class Series {
  constructor() {
    this.points = []; // [at, Map(key → row)]
  }

  add(state) {
    const last = this.points.at(-1);
    if (last && state.at <= last[0]) return;
    const rows = new Map();
    for (const [id, row] of state.rows) {
      const vessel = state.vessels.get(id);
      if (vessel) rows.set(seriesKey(vessel), row);
    }
    this.points.push([state.at, rows]);
    if (this.points.length > MOST_POINTS) this.points.shift();
  }

  times() {
    return this.points.map(([at]) => at);
  }

  column(key, name) {
    const index = COLUMN[name];
    return this.points.map(([, rows]) => {
      const row = rows.get(key);
      return row && row[index] >= 0 ? row[index] : null;
    });
  }

  // Growth per second of a counter.
  rate(key, name) {
    const index = COLUMN[name];
    return this.points.map(([at, rows], place) => {
      const before = place > 0 ? this.points[place - 1] : null;
      const row = rows.get(key);
      const old = before ? before[1].get(key) : null;
      if (!row || !old || row[index] < 0 || old[index] < 0 || row[index] < old[index]) return null;
      return (row[index] - old[index]) / (at - before[0]);
    });
  }
}

export function seriesOf(frames) {
  const state = new NodeState('');
  const series = new Series();
  for (const frame of frames) {
    state.apply(frame);
    series.add(state);
  }
  return series;
}
