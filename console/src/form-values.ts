// What the texts of forms mean.

/** A number of a form; `undefined` where the text is none. Empty is not limited. */
export function numberOf(text: string, whole: boolean): number | null | undefined {
  const typed = text.trim().replaceAll('_', '');
  if (!typed) return null;
  const pattern = whole ? /^\d{1,15}$/ : /^\d{1,15}(\.\d{1,9})?$/;
  return pattern.test(typed) ? Number(typed) : undefined;
}

/** The names of a text, one a line; none where nothing is named. */
export function namesOf(text: string): string[] | null {
  const names = text.split('\n').map((name) => name.trim()).filter(Boolean);
  return names.length ? [...new Set(names)] : null;
}
