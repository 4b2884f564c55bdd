// Charts over time (uPlot), with marks as vertical lines. Colours come from the style sheet.

import { html, Component } from './ui.js';
import { bytes, cores } from './format.js';
import { MARKS } from './marks.js';

const LEAST = { bytes: 1024, cores: 10, percent: 1, ms: 10 };
export const AXIS = {
  bytes: (amount) => (amount === null ? '–' : bytes(amount)),
  cores: (milli) => (milli === null ? '–' : cores(milli)),
  percent: (share) => (share === null ? '–' : `${Math.round(share)} %`),
  ms: (amount) => (amount === null ? '–' : `${Math.round(amount)} ms/s`),
};

// Ticks at round numbers of bytes.
const BYTE_STEPS = Array.from({ length: 51 }, (_, power) => 2 ** power);

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// `lines`: [label, values, colour name, { fill, dash }]
export class Chart extends Component {
  componentDidMount() {
    this.make();
    this.observer = new ResizeObserver(() => this.plot?.setSize({ width: this.width(), height: this.props.height ?? 190 }));
    this.observer.observe(this.base);
    this.media = matchMedia('(prefers-color-scheme: dark)');
    this.remake = () => this.make();
    this.media.addEventListener('change', this.remake);
  }

  componentWillUnmount() {
    this.observer.disconnect();
    this.media.removeEventListener('change', this.remake);
    this.plot?.destroy();
  }

  componentDidUpdate() {
    const key = this.key();
    if (key !== this.made) this.make();
    else this.plot.setData(this.data());
  }

  width() {
    return Math.max(220, this.base.clientWidth);
  }

  key() {
    return `${document.documentElement.dataset.theme ?? ''} ${this.props.lines.map(([label]) => label).join('|')}`;
  }

  data() {
    return [this.props.times, ...this.props.lines.map(([, values]) => values)];
  }

  make() {
    this.plot?.destroy();
    const shown = AXIS[this.props.unit];
    const grid = { stroke: colour('edge'), width: 1 };
    const axis = { stroke: colour('muted'), grid, ticks: grid, font: '12px system-ui, sans-serif' };
    this.plot = new globalThis.uPlot(
      {
        width: this.width(),
        height: this.props.height ?? 190,
        cursor: { drag: { x: false, y: false } },
        scales: { y: { range: (_, low, high) => [0, Math.max(high ?? 0, LEAST[this.props.unit] ?? 1) * 1.12] } },
        axes: [
          { ...axis, values: (_, splits) => splits.map((at) => new Date(at * 1000).toLocaleTimeString([], { hour12: false, hour: '2-digit', minute: '2-digit', second: '2-digit' })), space: 90 },
          { ...axis, size: 74, ...(this.props.unit === 'bytes' ? { incrs: BYTE_STEPS } : {}), values: (_, splits) => splits.map(shown) },
        ],
        series: [
          { label: 'time', value: (_, at) => (at === null ? '–' : new Date(at * 1000).toLocaleTimeString([], { hour12: false })) },
          ...this.props.lines.map(([label, , name, how]) => ({
            label, stroke: colour(name), width: how?.thin ? 1.5 : 2, dash: how?.dash, spanGaps: false, points: { show: false },
            fill: how?.fill ? `${colour(name)}33` : undefined, value: (_, amount) => shown(amount),
          })),
        ],
        hooks: { draw: [(plot) => this.drawMarks(plot)] },
      },
      this.data(),
      this.base.querySelector('.plot'),
    );
    this.made = this.key();
  }

  drawMarks(plot) {
    const { ctx } = plot;
    for (const mark of this.props.marks ?? []) {
      const x = plot.valToPos(mark.at, 'x', true);
      if (x < plot.bbox.left || x > plot.bbox.left + plot.bbox.width) continue;
      const tone = { oom: 'max', eviction: 'max', restart: 'high', throttling: 'high', resize: 'accent' }[mark.kind] ?? 'muted';
      ctx.save();
      ctx.strokeStyle = ctx.fillStyle = colour(tone);
      ctx.setLineDash([4, 3]);
      ctx.beginPath();
      ctx.moveTo(x, plot.bbox.top);
      ctx.lineTo(x, plot.bbox.top + plot.bbox.height);
      ctx.stroke();
      ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
      ctx.fillText(MARKS[mark.kind]?.[0] ?? '!', x + 3, plot.bbox.top + 12 * devicePixelRatio);
      ctx.restore();
    }
  }

  render({ label }) {
    return html`<div class="chart" role="img" aria-label=${label}><div class="plot"></div></div>`;
  }
}
