// Charts over time (uPlot), with marks as vertical lines. Colours come from the style sheet.

import { html, Component } from './ui.js';
import { bytes, cores, inert } from './format.js';
import { markSign } from './marks.js';

const TONES = { oom: 'max', eviction: 'max', restart: 'high', throttling: 'high', resize: 'accent' };
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

// `lines`: [label, values, colour name, { fill, dash, stepped, thin }]; `most`: what is above it is cut off
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
    this.signs = [];
    const shown = AXIS[this.props.unit];
    const grid = { stroke: colour('edge'), width: 1 };
    const axis = { stroke: colour('muted'), grid, ticks: grid, font: '12px system-ui, sans-serif' };
    this.plot = new globalThis.uPlot(
      {
        width: this.width(),
        height: this.props.height ?? 190,
        cursor: { drag: { x: false, y: false } },
        padding: [18, 14, 0, 0],
        legend: { markers: { width: 2 } },
        scales: { y: { range: (_, low, high) => [0, Math.max(Math.min(high ?? 0, this.props.most ?? Infinity), LEAST[this.props.unit] ?? 1) * 1.12] } },
        axes: [
          { ...axis, values: (_, splits) => splits.map((at) => new Date(at * 1000).toLocaleTimeString([], { hour12: false, hour: '2-digit', minute: '2-digit', second: '2-digit' })), space: 90 },
          { ...axis, size: 74, ...(this.props.unit === 'bytes' ? { incrs: BYTE_STEPS } : {}), values: (_, splits) => splits.map(shown) },
        ],
        series: [
          { label: 'time', value: (_, at) => (at === null ? '–' : new Date(at * 1000).toLocaleTimeString([], { hour12: false })) },
          ...this.props.lines.map(([label, , name, how]) => ({
            label, stroke: colour(name), width: how?.thin ? 1.5 : 2, dash: how?.dash, spanGaps: false, points: { show: false },
            paths: how?.stepped ? globalThis.uPlot.paths.stepped({ align: 1 }) : undefined,
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

  // A line for each mark on the canvas, and its sign above the plot; signs that would cover each other become one.
  drawMarks(plot) {
    const { ctx, bbox } = plot;
    const groups = [];
    for (const mark of [...(this.props.marks ?? [])].sort((a, b) => a.at - b.at)) {
      const x = plot.valToPos(mark.at, 'x', true);
      if (x < bbox.left - 1 || x > bbox.left + bbox.width + 1) continue;
      ctx.save();
      ctx.strokeStyle = colour(TONES[mark.kind] ?? 'muted');
      ctx.setLineDash([4, 3]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.restore();
      const left = (x - bbox.left) / devicePixelRatio;
      const last = groups.at(-1);
      if (last && left - last.left < (last.marks.length > 1 ? 56 : 38)) last.marks.push(mark);
      else groups.push({ left, marks: [mark] });
    }
    this.signs ??= [];
    while (this.signs.length > groups.length) this.signs.pop().remove();
    groups.forEach(({ left, marks }, index) => {
      const sign = this.signs[index] ?? document.createElement('span');
      const signs = [...new Set(marks.map(markSign))];
      const steps = marks.filter((mark) => mark.step).map((mark) => mark.step.number);
      sign.className = `chart-mark ${TONES[marks[0].kind] ?? 'muted'}`;
      sign.textContent = steps.length > 1 ? `T${steps[0]}–T${steps.at(-1)}` : signs.slice(0, 3).join(' ');
      sign.title = marks.map((mark) => inert(`${markSign(mark)} ${mark.text}`)).join('\n');
      sign.dataset.steps = steps.join(',');
      sign.style.left = `${left}px`;
      if (sign.parentNode !== plot.over) plot.over.append(sign);
      this.signs[index] = sign;
    });
  }

  render({ label }) {
    return html`<div class="chart" role="img" aria-label=${label}><div class="plot"></div></div>`;
  }
}
