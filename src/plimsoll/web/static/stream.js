// One stream per tab: a snapshot, then changes. After a lost connection it continues from the last sequence number.

import { ask } from './session.js';

const SILENT_MS = 16000; // the server sends a heartbeat every 5 s
const RETRY_MS = [500, 1000, 2000, 5000];

export class Stream {
  // `on` gets each message; `status` gets 'connecting', 'open' or 'lost' with a reason.
  constructor(node, on, status) {
    this.node = node;
    this.on = on;
    this.status = status;
    this.hub = '';
    this.seq = -1;
    this.closed = false;
    this.failures = 0;
    this.control = null;
    this.resumed = 0;
  }

  close() {
    this.closed = true;
    this.control?.abort();
  }

  // For tests and for a tab that comes back: drop the connection; it resumes by itself.
  drop() {
    this.control?.abort();
  }

  async run() {
    while (!this.closed) {
      this.status('connecting');
      let reason = 'the connection was closed';
      try {
        await this.read();
      } catch (error) {
        reason = error.message;
        if (error.status === 401 || error.status === 403) {
          this.status('refused', reason, error.status);
          return;
        }
      }
      if (this.closed) return;
      this.status('lost', reason);
      const pause = RETRY_MS[Math.min(this.failures, RETRY_MS.length - 1)];
      this.failures += 1;
      await new Promise((done) => setTimeout(done, pause));
    }
  }

  async read() {
    this.control = new AbortController();
    const query = new URLSearchParams({ node: this.node });
    if (this.seq >= 0) {
      query.set('hub', this.hub);
      query.set('since', String(this.seq));
    }
    const answer = await ask(`api/stream?${query}`, { signal: this.control.signal });
    if (!answer.ok) {
      const error = new Error((await answer.json().catch(() => ({}))).message ?? `HTTP ${answer.status}`);
      error.status = answer.status;
      throw error;
    }
    if (this.seq >= 0) this.resumed += 1;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const timer = setTimeout(() => this.control.abort(), SILENT_MS);
      const { value, done } = await reader.read();
      clearTimeout(timer);
      if (done) return;
      const lines = (rest + value).split('\n');
      rest = lines.pop();
      for (const line of lines) if (line) this.take(JSON.parse(line));
    }
  }

  take(message) {
    this.failures = 0;
    this.status('open');
    if (message.kind === 'snapshot') this.hub = message.hub;
    if (message.kind !== 'heartbeat') this.on(message);
    this.seq = message.seq;
  }
}
