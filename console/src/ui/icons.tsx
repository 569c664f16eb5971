// Line icons, drawn on a grid of 16.

const PATHS = {
  home: 'M2.5 7 8 2.5 13.5 7v6a.5.5 0 0 1-.5.5h-3V9.5H6v4H3a.5.5 0 0 1-.5-.5z',
  play: 'M4.5 2.8v10.4a.4.4 0 0 0 .6.3l8-5.2a.4.4 0 0 0 0-.6l-8-5.2a.4.4 0 0 0-.6.3z',
  list: 'M5.5 4h8M5.5 8h8M5.5 12h8M2.5 4h.01M2.5 8h.01M2.5 12h.01',
  chat: 'M2.5 3.5h11v7.5h-6L4.5 13.5V11h-2z',
  person: 'M8 7.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM3 13.5c.5-2.6 2.4-4 5-4s4.500 1.400 5 4',
  tool: 'M9.8 2.6a3.600 3.600 0 0 0-3.300 5l-4 4a1.300 1.300 0 0 0 1.900 1.900l4-4a3.600 3.600 0 0 0 4.800-4.600L11 7l-2-2 2.100-2.200a3.600 3.600 0 0 0-1.300-.2z',
  check: 'm3 8.500 3.300 3.300L13 4.800',
  book: 'M3 3h4a1.500 1.500 0 0 1 1 1v9a1.500 1.500 0 0 0-1-1H3zM13 3H9a1.500 1.500 0 0 0-1 1v9a1.500 1.500 0 0 1 1-1h4z',
  chart: 'M2.500 13.500h11M4.500 11V8M8 11V3.500M11.500 11V6',
  key: 'M10.500 8.500a3 3 0 1 0-2.800-2L2.500 11.700V13.500h2v-1.500h1.500v-1.500l1.700-1.700a3 3 0 0 0 2.800-.3zM11 5h.01',
  gear: 'M8 10a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM8 2v1.500M8 12.500V14M3.800 3.800l1 1M11.200 11.200l1 1M2 8h1.500M12.500 8H14M3.800 12.200l1-1M11.200 4.800l1-1',
  course: 'M1.500 6 8 3l6.500 3L8 9zM4 7.500v3.500c2.500 1.700 5.500 1.700 8 0V7.500M14.500 6v4',
  gauge: 'M2.500 12a6 6 0 1 1 11 0M8 10.500l2.500-3.500M8 10.500h.01',
  code: 'm5.500 4.500-3.500 3.500 3.500 3.500M10.500 4.500 14 8l-3.500 3.500',
  search: 'M7 11.500a4.500 4.500 0 1 0 0-9 4.500 4.500 0 0 0 0 9zM13.500 13.500l-3.300-3.300',
  menu: 'M2.500 4h11M2.500 8h11M2.500 12h11',
  close: 'm3.500 3.500 9 9M12.500 3.500l-9 9',
  copy: 'M5.500 5.500h8v8h-8zM10.500 5.500v-3h-8v8h3',
  warn: 'M8 2.500 14 13.500H2zM8 6.500v3.200M8 11.600h.01',
  info: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 7.500V11M8 5.200h.01',
  stop: 'M4 4h8v8H4z',
  plus: 'M8 3v10M3 8h10',
  back: 'M9.500 3.500 5 8l4.500 4.500',
  next: 'M6.500 3.500 11 8l-4.500 4.500',
  refresh: 'M13 8a5 5 0 1 1-1.500-3.600M13 2.500v3h-3',
  columns: 'M2.500 3h11v10h-11zM6.200 3v10M9.800 3v10',
  sun: 'M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1.500v1M8 13.500v1M1.500 8h1M13.500 8h1M3.400 3.400l.7.7M11.900 11.900l.7.7M3.400 12.600l.7-.7M11.900 4.100l.7-.7',
  pause: 'M5 3.500v9M11 3.500v9',
  trash: 'M3 4.500h10M6.500 4.500v-2h3v2M4.500 4.500l.5 9h6l.5-9',
  download: 'M8 2.500v7.500M4.800 7 8 10.200 11.200 7M3 13.500h10',
  out: 'M6.500 2.500h-4v11h4M7 8h6.500M10.800 5.200 13.500 8l-2.700 2.800',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.500" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}

export function Logo() {
  return (
    <svg viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" fill="#2c4fd6" />
      <circle cx="12.500" cy="16" r="6.500" fill="none" stroke="#fff" stroke-width="2.600" />
      <circle cx="19.500" cy="16" r="6.500" fill="none" stroke="#fff" stroke-width="2.600" stroke-opacity=".75" />
    </svg>
  );
}
