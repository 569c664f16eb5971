// Bars over time, with a labelled axis and the numbers as a table for readers of the screen.

import { useState } from 'preact/hooks';

export interface Point {
  label: string;
  /** One value for each series. */
  values: number[];
}

const WIDTH = 420;
const HEIGHT = 168;
const LEFT = 52;
const BOTTOM = 22;
const TOP = 10;

/** A round number at or above the value, for the top of the axis. */
export function roundUp(value: number): number {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 2.5, 5, 10].find((step) => step * power >= value) ?? 10) * power;
}

export function BarChart(props: { title: string; series: string[]; points: Point[]; format: (value: number) => string }) {
  const [over, setOver] = useState(-1);
  const totals = props.points.map((point) => point.values.reduce((sum, value) => sum + value, 0));
  const top = roundUp(Math.max(0, ...totals));
  const step = (WIDTH - LEFT) / Math.max(1, props.points.length);
  const y = (value: number): number => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
  const every = Math.max(1, Math.ceil(props.points.length / 6));
  const shown = over >= 0 ? props.points[over] : undefined;
  return (
    <figure class="chart">
      <figcaption class="row between">
        <span class="chart-title">{props.title}</span>
        <span class="small muted" aria-hidden="true">
          {shown
            ? `${shown.label}: ${shown.values.map((value, index) => `${props.series.length > 1 ? `${props.series[index]} ` : ''}${props.format(value)}`).join(' · ')}`
            : props.series.length > 1 && <Legend names={props.series} />}
        </span>
      </figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} aria-hidden="true" onMouseLeave={() => setOver(-1)}>
        {[0, 0.5, 1].map((part) => (
          <g key={part}>
            <line class="chart-line" x1={LEFT} x2={WIDTH} y1={y(top * part)} y2={y(top * part)} />
            <text class="chart-text" x={LEFT - 6} y={y(top * part) + 4} text-anchor="end">
              {props.format(top * part)}
            </text>
          </g>
        ))}
        {props.points.map((point, index) => {
          let base = 0;
          return (
            <g key={index} onMouseEnter={() => setOver(index)} class={over === index ? 'over' : ''}>
              <rect x={LEFT + index * step} y={TOP} width={step} height={HEIGHT - TOP - BOTTOM} class="chart-hit" />
              {point.values.map((value, series) => {
                const from = base;
                base += value;
                return <rect key={series} class={`chart-bar s${series + 1}`} x={LEFT + index * step + step * 0.14} width={step * 0.72} y={y(base)} height={Math.max(0, y(from) - y(base))} rx={1.5} />;
              })}
              {index % every === 0 && (
                <text class="chart-text" x={LEFT + index * step + step / 2} y={HEIGHT - 6} text-anchor="middle">
                  {point.label}
                </text>
              )}
            </g>
          );
        })}
      </svg>
      <table class="hidden-text">
        <caption>{props.title}</caption>
        <thead>
          <tr>
            <td />
            {props.series.map((name) => (
              <th key={name}>{name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {props.points.map((point, index) => (
            <tr key={index}>
              <th>{point.label}</th>
              {point.values.map((value, series) => (
                <td key={series}>{props.format(value)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </figure>
  );
}

function Legend({ names }: { names: string[] }) {
  return (
    <span class="row">
      {names.map((name, index) => (
        <span class="row tight" key={name}>
          <span class={`swatch series-${index + 1}`} />
          {name}
        </span>
      ))}
    </span>
  );
}
