// Texts in the user's language. Both dictionaries have the same keys, which a test checks.

import { signal } from '@preact/signals';
import { en } from './i18n/en';
import { id } from './i18n/id';

export type Key = keyof typeof en;
export type Language = 'en' | 'id';

const DICTIONARIES: Record<Language, Record<Key, string>> = { en, id };
const STORED = 'amalgam.language';

export const language = signal<Language>(initial());

function initial(): Language {
  try {
    const stored = localStorage.getItem(STORED);
    if (stored === 'en' || stored === 'id') return stored;
  } catch {
    // The browser's language decides.
  }
  return typeof navigator !== 'undefined' && navigator.language.startsWith('id') ? 'id' : 'en';
}

export function setLanguage(value: Language): void {
  language.value = value;
  document.documentElement.lang = value;
  try {
    localStorage.setItem(STORED, value);
  } catch {
    // It lasts for as long as the page.
  }
}

/** A word of the API in the user's language; the word itself if there is no text for it. */
export function word(kind: 'status' | 'door' | 'span' | 'kind', value: string): string {
  const texts: Record<string, string> = DICTIONARIES[language.value];
  return texts[`${kind}.${value}`] ?? value.replaceAll('_', ' ');
}

/** The text with this key, with `{name}` replaced by values. */
export function t(key: Key, values: Record<string, string | number> = {}): string {
  const text = DICTIONARIES[language.value][key];
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => (name in values ? String(values[name]) : whole));
}
