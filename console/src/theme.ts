// Light or dark: the system's choice, until the user makes another one.

import { signal } from '@preact/signals';

export type Theme = 'system' | 'light' | 'dark';

const STORED = 'amalgam.theme';

function initial(): Theme {
  try {
    const stored = localStorage.getItem(STORED);
    if (stored === 'light' || stored === 'dark') return stored;
  } catch {
    // The system's choice.
  }
  return 'system';
}

export const theme = signal<Theme>(initial());

export function setTheme(value: Theme): void {
  theme.value = value;
  try {
    if (value === 'system') localStorage.removeItem(STORED);
    else localStorage.setItem(STORED, value);
  } catch {
    // It lasts for as long as the page.
  }
  apply();
}

function apply(): void {
  const dark = theme.value === 'dark' || (theme.value === 'system' && window.matchMedia('(prefers-color-scheme: dark)').matches);
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
}

export function startTheme(): void {
  apply();
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', apply);
}
