// Makes elements. No text of a model, a tool or a page ever becomes markup.

type Child = Node | string | null | undefined | false;

/** An element with attributes and children. */
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  for (const child of children) if (child) made.append(child);
  return made;
}

/** A drawing of lines in a box of 24. */
export function icon(...paths: string[]): SVGElement {
  const made = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  for (const [name, value] of Object.entries({ viewBox: '0 0 24 24', 'aria-hidden': 'true', focusable: 'false' })) made.setAttribute(name, value);
  for (const path of paths) {
    const line = document.createElementNS('http://www.w3.org/2000/svg', 'path');
    line.setAttribute('d', path);
    made.append(line);
  }
  return made;
}

/** An address that a link may have: http or https, or nothing. */
export function safeUrl(text: unknown): string | null {
  if (typeof text !== 'string' || text.length > 2000) return null;
  try {
    const url = new URL(text);
    return url.protocol === 'http:' || url.protocol === 'https:' ? url.href : null;
  } catch {
    return null;
  }
}

/** A link to another page, in a tab of its own. */
export function link(href: string, newTab: string, ...children: Child[]): HTMLAnchorElement {
  return element('a', { href, target: '_blank', rel: 'noopener noreferrer nofollow' }, ...children, element('span', { class: 'hidden' }, ` ${newTab}`));
}
