// Numbers, times and sizes as people read them, in the user's language and time zone.

import { language } from './i18n';

const cache = new Map<string, Intl.NumberFormat | Intl.DateTimeFormat | Intl.RelativeTimeFormat>();

function cached<T extends Intl.NumberFormat | Intl.DateTimeFormat | Intl.RelativeTimeFormat>(name: string, make: () => T): T {
  const key = `${language.value}/${name}`;
  let found = cache.get(key) as T | undefined;
  if (!found) cache.set(key, (found = make()));
  return found;
}

export function count(value: number): string {
  return cached('count', () => new Intl.NumberFormat(language.value)).format(value);
}

/** 1,234 as 1.2K, for headings. */
export function short(value: number): string {
  return cached('short', () => new Intl.NumberFormat(language.value, { notation: 'compact', maximumFractionDigits: 1 })).format(value);
}

export function money(value: number | null | undefined): string {
  if (value === null || value === undefined) return '–';
  const digits = value !== 0 && Math.abs(value) < 0.01 ? 6 : value < 1 ? 4 : 2;
  return cached(`money${digits}`, () =>
    new Intl.NumberFormat(language.value, { style: 'currency', currency: 'USD', minimumFractionDigits: 2, maximumFractionDigits: digits }),
  ).format(value);
}

/** Milliseconds as `12 ms`, `1.2 s` or `3 m 5 s`. */
export function duration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return '–';
  if (ms < 10 && !Number.isInteger(ms)) return `${ms.toFixed(ms < 1 ? 2 : 1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(2)} s`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60_000);
  return `${minutes} m ${Math.round((ms % 60_000) / 1000)} s`;
}

export function bytes(size: number): string {
  if (size < 1024) return `${size} B`;
  const units = ['KiB', 'MiB', 'GiB'];
  let value = size / 1024;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** A date and a time in the user's zone. */
export function dateTime(ms: number): string {
  return cached('dateTime', () => new Intl.DateTimeFormat(language.value, { dateStyle: 'medium', timeStyle: 'medium' })).format(ms);
}

export function clock(ms: number): string {
  const options: Intl.DateTimeFormatOptions = { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false };
  return cached('clock', () => new Intl.DateTimeFormat(language.value, options)).format(ms);
}

export function day(ms: number): string {
  return cached('day', () => new Intl.DateTimeFormat(language.value, { day: 'numeric', month: 'short' })).format(ms);
}

export function isToday(ms: number, now = Date.now()): boolean {
  return new Date(ms).toDateString() === new Date(now).toDateString();
}

/** The time alone today, with the day before it otherwise. */
export function shortTime(ms: number, now = Date.now()): string {
  return isToday(ms, now) ? clock(ms) : `${day(ms)} ${clock(ms).slice(0, 5)}`;
}

/** How long ago, such as `3 minutes ago`. */
export function ago(ms: number, now = Date.now()): string {
  const seconds = Math.round((ms - now) / 1000);
  const steps: [number, Intl.RelativeTimeFormatUnit][] = [
    [60, 'second'],
    [60, 'minute'],
    [24, 'hour'],
    [30, 'day'],
    [12, 'month'],
    [Number.POSITIVE_INFINITY, 'year'],
  ];
  let value = seconds;
  for (const [size, unit] of steps) {
    if (Math.abs(value) < size) {
      return cached('ago', () => new Intl.RelativeTimeFormat(language.value, { numeric: 'auto' })).format(Math.round(value), unit);
    }
    value /= size;
  }
  return dateTime(ms);
}
