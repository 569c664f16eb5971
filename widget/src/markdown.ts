// Markdown as elements: paragraphs, headings, lists, quotes, code, emphasis and links to http and https. Everything else,
// HTML included, stays text.

import { element, link, safeUrl } from './dom';

const FENCE = /^ {0,3}(```|~~~)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const ITEM = /^(\s*)(?:([-*+])|(\d{1,9})[.)])\s+(.*)$/;
const QUOTE = /^ {0,3}>\s?(.*)$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;

/** How deep quotes and lists may be in each other; deeper text stays as it is. */
const MAX_DEPTH = 6;

/** The blocks of a text. */
export function markdown(text: string, newTab: string): DocumentFragment {
  return blocks(text.replace(/\r\n?/g, '\n').split('\n'), newTab, 0);
}

function blocks(lines: string[], newTab: string, depth: number): DocumentFragment {
  const made = document.createDocumentFragment();
  let paragraph: string[] = [];
  const flush = (): void => {
    if (paragraph.length) made.append(element('p', {}, inline(paragraph.join('\n'), newTab)));
    paragraph = [];
  };
  for (let at = 0; at < lines.length; ) {
    const line = lines[at] ?? '';
    const fence = FENCE.exec(line);
    const heading = HEADING.exec(line);
    if (fence) {
      flush();
      const code: string[] = [];
      for (at += 1; at < lines.length && !(lines[at] ?? '').trim().startsWith(fence[1] ?? ''); at += 1) code.push(lines[at] ?? '');
      at += 1;
      made.append(element('pre', { tabindex: '0' }, element('code', {}, code.join('\n'))));
    } else if (heading) {
      flush();
      // The host page has the levels above.
      made.append(element('p', { class: `heading h${heading[1]?.length ?? 1}` }, inline(heading[2] ?? '', newTab)));
      at += 1;
    } else if (RULE.test(line)) {
      flush();
      made.append(element('hr'));
      at += 1;
    } else if (QUOTE.test(line) && depth < MAX_DEPTH) {
      flush();
      const quoted: string[] = [];
      for (; at < lines.length; at += 1) {
        const quote = QUOTE.exec(lines[at] ?? '');
        if (!quote) break;
        quoted.push(quote[1] ?? '');
      }
      made.append(element('blockquote', {}, blocks(quoted, newTab, depth + 1)));
    } else if (ITEM.test(line) && depth < MAX_DEPTH) {
      flush();
      const { list, next } = readList(lines, at, newTab, depth);
      made.append(list);
      at = next;
    } else if (!line.trim()) {
      flush();
      at += 1;
    } else {
      paragraph.push(line);
      at += 1;
    }
  }
  flush();
  return made;
}

/** The list that begins in a line: items of one indentation, each with the lines that are indented further. */
function readList(lines: string[], start: number, newTab: string, depth: number): { list: HTMLElement; next: number } {
  const first = ITEM.exec(lines[start] ?? '');
  const indent = first?.[1]?.length ?? 0;
  const ordered = Boolean(first?.[3]);
  const list = ordered ? element('ol', { start: String(Number(first?.[3] ?? 1)) }) : element('ul');
  let at = start;
  while (at < lines.length) {
    const item = ITEM.exec(lines[at] ?? '');
    if (!item || (item[1]?.length ?? 0) !== indent || Boolean(item[3]) !== ordered) break;
    const own = [item[4] ?? ''];
    for (at += 1; at < lines.length; at += 1) {
      const line = lines[at] ?? '';
      const deeper = /^\s*/.exec(line)?.[0].length ?? 0;
      // A line that is not indented ends the item, and so does an empty one before it.
      if (line.trim() ? deeper <= indent : !/^\s+\S/.test(lines[at + 1] ?? '')) break;
      own.push(line.slice(Math.min(deeper, indent + 2)));
    }
    const content = blocks(own, newTab, depth + 1);
    const only = content.childNodes.length === 1 ? content.firstElementChild : null;
    list.append(element('li', {}, only?.tagName === 'P' ? unwrapped(only) : content));
    if (!(lines[at] ?? 'x').trim() && ITEM.test(lines[at + 1] ?? '')) at += 1;
  }
  return { list, next: at };
}

function unwrapped(paragraph: Element): DocumentFragment {
  const made = document.createDocumentFragment();
  made.append(...paragraph.childNodes);
  return made;
}

/** The parts of a line, tried in this order at every place. */
const PARTS: [RegExp, (match: RegExpExecArray, newTab: string) => Node | null][] = [
  [/^\\([\\`*_{}[\]()#+\-.!>~|])/, (match) => document.createTextNode(match[1] ?? '')],
  [/^(`+)([\s\S]*?[^`])\1(?!`)/, (match) => element('code', {}, (match[2] ?? '').trim())],
  [/^\*\*(?=\S)([\s\S]*?\S)\*\*(?!\*)/, (match, newTab) => element('strong', {}, inline(match[1] ?? '', newTab))],
  [/^__(?=\S)([\s\S]*?\S)__(?!\w)/, (match, newTab) => element('strong', {}, inline(match[1] ?? '', newTab))],
  [/^~~(?=\S)([\s\S]*?\S)~~/, (match, newTab) => element('s', {}, inline(match[1] ?? '', newTab))],
  [/^\*(?=[^\s*])([^*]*?[^\s*])\*(?!\*)/, (match, newTab) => element('em', {}, inline(match[1] ?? '', newTab))],
  [/^_(?=[^\s_])([^_]*?[^\s_])_(?!\w)/, (match, newTab) => element('em', {}, inline(match[1] ?? '', newTab))],
  [/^!?\[([^\]]*)\]\(\s*<?((?:[^\s()<>]|\([^\s()<>]*\))*)>?(?:\s+"[^"]*")?\s*\)/, linked],
  [/^<?(https?:\/\/[^\s<>"`]*[^\s<>"`.,;:!?')\]}*])>?/, (match, newTab) => anchor(match[1] ?? '', match[1] ?? '', newTab)],
];

/** Text with emphasis, code and links. Images become links: a model must not make the browser load an address. */
function inline(text: string, newTab: string): DocumentFragment {
  const made = document.createDocumentFragment();
  let plain = '';
  const flush = (): void => {
    plain.split('\n').forEach((line, index) => {
      if (index) made.append(element('br'));
      if (line) made.append(line);
    });
    plain = '';
  };
  for (let at = 0; at < text.length; ) {
    const found = /[\\`*_~![<h]/.test(text[at] ?? '') && !(/[_h]/.test(text[at] ?? '') && /\w/.test(text[at - 1] ?? '')) ? part(text.slice(at, at + 1500), newTab) : null;
    if (found) {
      flush();
      made.append(found.node);
      at += found.length;
    } else {
      plain += text[at];
      at += 1;
    }
  }
  flush();
  return made;
}

function part(rest: string, newTab: string): { node: Node; length: number } | null {
  for (const [pattern, make] of PARTS) {
    const match = pattern.exec(rest);
    const node = match && make(match, newTab);
    if (match && node) return { node, length: match[0].length };
  }
  return null;
}

function linked(match: RegExpExecArray, newTab: string): Node {
  const [whole, label, address] = match;
  return safeUrl(address) ? anchor(address ?? '', label || address || '', newTab) : document.createTextNode(label || whole);
}

function anchor(address: string, label: string, newTab: string): Node {
  const href = safeUrl(address);
  return href ? link(href, newTab, label) : document.createTextNode(label);
}
