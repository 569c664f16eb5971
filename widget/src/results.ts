// The results of tools: course cards and the course panel. A failed tool is a quiet hint, an unknown one is nothing.

import { element, link, safeUrl } from './dom';
import type { Texts } from './texts';

export interface ToolResult {
  id: string;
  name: string;
  output: Record<string, unknown>;
}

/** Loads a further page of recommendations. */
export type NextPage = (address: string) => Promise<Record<string, unknown>>;

const record = (value: unknown): Record<string, unknown> | null =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : null;
const text = (value: unknown, most = 400): string => (typeof value === 'string' ? value.trim().slice(0, most) : '');
const percent = (value: unknown): number | null => (typeof value === 'number' && Number.isFinite(value) ? Math.round(Math.min(100, Math.max(0, value))) : null);

/** Reads `tool_results`, whatever a server sends in their place. */
export function readResults(value: unknown): ToolResult[] {
  if (!Array.isArray(value)) return [];
  return value.flatMap((entry) => {
    const one = record(entry);
    const output = record(one?.output);
    return one && output ? [{ id: text(one.id), name: text(one.name), output }] : [];
  });
}

/** What is shown for the results of one answer; nothing without any. */
export function renderResults(results: ToolResult[], texts: Texts, nextPage: NextPage): HTMLElement[] {
  const shown: HTMLElement[] = [];
  let failed = false;
  for (const { name, output } of results) {
    if (output.error !== undefined) {
      failed = true;
      continue;
    }
    const made = name === 'get_course_recommendation' ? recommendations(output, texts, nextPage) : name === 'get_course_detail' ? panel(output, texts) : null;
    if (made) shown.push(made);
  }
  if (failed) shown.push(element('p', { class: 'hint' }, texts.toolHint));
  return shown;
}

function recommendations(output: Record<string, unknown>, texts: Texts, nextPage: NextPage): HTMLElement | null {
  const list = element('ul', { class: 'cards' });
  const made = element('div', { class: 'courses' });
  const add = (page: Record<string, unknown>): HTMLElement | null => {
    const cards = (Array.isArray(page.results) ? page.results : []).slice(0, 50).flatMap((course) => card(record(course), texts) ?? []);
    list.append(...cards);
    return cards[0] ?? null;
  };
  if (!add(output)) return null;
  if (typeof output.count === 'number') made.append(element('p', { class: 'count' }, texts.courses(output.count)));
  made.append(list);
  let next = text(output.next, 2000);
  const more = element('button', { type: 'button', class: 'quiet' }, texts.more);
  more.addEventListener('click', () => {
    if (more.getAttribute('aria-disabled') === 'true') return;
    more.setAttribute('aria-disabled', 'true');
    more.textContent = texts.loading;
    nextPage(next)
      .then((page) => {
        made.querySelector('.hint')?.remove();
        next = text(page.next, 2000);
        const first = add(page);
        // The keyboard goes on where the new courses begin.
        (first?.querySelector<HTMLElement>('a') ?? first)?.focus();
        if (!next) more.remove();
      })
      .catch(() => {
        if (!made.querySelector('.hint')) more.before(element('p', { class: 'hint' }, texts.toolHint));
      })
      .finally(() => {
        more.setAttribute('aria-disabled', 'false');
        more.textContent = texts.more;
      });
  });
  if (next) made.append(more);
  return made;
}

function card(course: Record<string, unknown> | null, texts: Texts): HTMLElement | null {
  const title = text(course?.title);
  if (!course || !title) return null;
  const href = safeUrl(course.url);
  const badges = [text(course.type, 40), text(course.status, 40), course.in_playlist === true && texts.inPlaylist, course.is_eligible === false && texts.notEligible];
  return element(
    'li',
    { class: 'card', tabindex: '-1' },
    element('p', { class: 'name', dir: 'auto' }, href ? link(href, texts.newTab, title) : title),
    text(course.description) && element('p', { class: 'about', dir: 'auto' }, text(course.description)),
    badgeList(badges),
    progress(percent(course.progress), texts),
  );
}

function panel(output: Record<string, unknown>, texts: Texts): HTMLElement | null {
  const course = record(output.course);
  const title = text(course?.title);
  if (!course || !title) return null;
  const tags = Array.isArray(course.tags) ? course.tags.slice(0, 12).map((tag) => text(tag, 40)) : [];
  const least = percent(course.min_percentage_finish);
  return element(
    'section',
    { class: 'panel-course', 'aria-label': texts.course },
    element('p', { class: 'name', dir: 'auto' }, title),
    text(course.description, 2000) && element('p', { class: 'about', dir: 'auto' }, text(course.description, 2000)),
    badgeList([text(course.modality, 40), text(course.status, 40), least !== null && least > 0 && texts.finish(least), course.content_in_sequence === true && texts.inSequence, ...tags]),
  );
}

function badgeList(badges: (string | false)[]): HTMLElement | null {
  const shown = badges.filter((badge): badge is string => Boolean(badge));
  return shown.length ? element('p', { class: 'badges' }, ...shown.map((badge) => element('span', { class: 'badge' }, badge))) : null;
}

function progress(done: number | null, texts: Texts): HTMLElement | null {
  if (!done) return null;
  const bar = element('progress', { max: '100', value: String(done), 'aria-label': texts.progress(done) });
  return element('p', { class: 'progress' }, bar, element('span', { 'aria-hidden': 'true' }, texts.progress(done)));
}
