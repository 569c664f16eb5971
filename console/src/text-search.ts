// Long texts: broken into lines that can be drawn, searched as a whole, indented without changing a character of a value.

/** The width of a drawn line in characters; longer lines are broken. */
const WIDTH = 160;

export interface TextLine {
  /** The place of the line in the text. */
  start: number;
  text: string;
}

/** Breaks a text into lines that can be drawn, without cutting a character in two. */
export function linesOf(text: string): TextLine[] {
  const lines: TextLine[] = [];
  let from = 0;
  while (from <= text.length) {
    const feed = text.indexOf('\n', from);
    const end = feed < 0 ? text.length : feed;
    let at = from;
    do {
      let to = Math.min(end, at + WIDTH);
      const code = text.charCodeAt(to - 1);
      if (to < end && code >= 0xd800 && code < 0xdc00) to -= 1;
      lines.push({ start: at, text: text.slice(at, to) });
      at = to;
    } while (at < end);
    from = end + 1;
  }
  return lines;
}

/** The same text in lower case with every character at its place. Characters whose lower case is longer stay as they are. */
function lower(text: string): string {
  const whole = text.toLowerCase();
  if (whole.length === text.length) return whole;
  let same = '';
  for (const character of text) {
    const one = character.toLowerCase();
    same += one.length === character.length ? one : character;
  }
  return same;
}

/** The places where a text contains another, ignoring case; at most `limit`. */
export function found(text: string, wanted: string, limit = 10_000): number[] {
  const needle = lower(wanted);
  if (!needle) return [];
  const places: number[] = [];
  const within = lower(text);
  for (let at = within.indexOf(needle); at >= 0 && places.length < limit; at = within.indexOf(needle, at + needle.length)) places.push(at);
  return places;
}

/** The index of the line that contains a place. */
export function lineAt(lines: TextLine[], place: number): number {
  let low = 0;
  let high = lines.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((lines[middle]?.start ?? 0) <= place) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** JSON with line breaks and indentation between its tokens. The tokens stay as they are: no number is rounded, no key is lost. Other text
 * is returned unchanged. */
export function indented(text: string): string {
  const first = text.trimStart().charAt(0);
  if (first !== '{' && first !== '[') return text;
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  const parts: string[] = [];
  let depth = 0;
  let at = 0;
  const line = (): void => void parts.push('\n', '  '.repeat(depth));
  while (at < text.length) {
    const character = text.charAt(at);
    if (character === '"') {
      const end = stringEnd(text, at);
      parts.push(text.slice(at, end));
      at = end;
      continue;
    }
    at += 1;
    if (character === '{' || character === '[') {
      const next = /\S/.exec(text.slice(at, at + 64))?.[0];
      parts.push(character);
      if (next === '}' || next === ']') {
        parts.push(next);
        at = text.indexOf(next, at) + 1;
        continue;
      }
      depth += 1;
      line();
    } else if (character === '}' || character === ']') {
      depth -= 1;
      line();
      parts.push(character);
    } else if (character === ',') {
      parts.push(character);
      line();
    } else if (character === ':') parts.push(': ');
    else if (!/\s/.test(character)) parts.push(character);
  }
  return parts.join('');
}

function stringEnd(text: string, start: number): number {
  for (let at = start + 1; ; ) {
    const quote = text.indexOf('"', at);
    if (quote < 0) return text.length;
    let escapes = 0;
    while (text.charAt(quote - 1 - escapes) === '\\') escapes += 1;
    if (escapes % 2 === 0) return quote + 1;
    at = quote + 1;
  }
}
