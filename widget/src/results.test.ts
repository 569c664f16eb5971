import { describe, expect, test, vi } from 'vitest';
import { readResults, renderResults } from './results';
import { textsOf } from './texts';

const texts = textsOf('en');
const never = () => Promise.reject(new Error('no page'));
const shown = (name: string, output: unknown, next = never) => renderResults(readResults([{ id: 'call_1', name, output }]), texts, next);
const course = { id: 885, title: 'Evaluasi ROI', description: 'About', url: 'https://example.com/courses/885', type: 'Course', status: null, progress: 40, is_eligible: true, in_playlist: false };

describe('tool results', () => {
  test('recommendations are cards with links, in their order', () => {
    const [list] = shown('get_course_recommendation', { count: 43, next: null, previous: null, results: [course, { ...course, title: 'Second', url: 'javascript:alert(1)' }] });
    expect(list?.querySelectorAll('.card')).toHaveLength(2);
    expect(list?.querySelector('.count')?.textContent).toBe('43 courses');
    expect(list?.querySelector('a')?.href).toBe('https://example.com/courses/885');
    expect(list?.querySelectorAll('a')).toHaveLength(1);
    expect(list?.querySelector('button')).toBeNull();
    expect(list?.querySelector('progress')?.value).toBe(40);
  });

  test('a course is a panel with its tags', () => {
    const [panel] = shown('get_course_detail', { course: { id: 28, title: 'Leadership', description: 'What changes', modality: 'Learn', status: 'Started', content_in_sequence: false, min_percentage_finish: 100, tags: ['leadership'] } });
    expect(Array.from(panel?.querySelectorAll('.badge') ?? [], (badge) => badge.textContent)).toEqual(['Learn', 'Started', 'Complete 100% to finish', 'leadership']);
  });

  test('errors are one quiet hint, unknown tools and odd values nothing', () => {
    const results = readResults([
      { id: '1', name: 'get_course_detail', output: { error: 'Course with id=28 was not found.' } },
      { id: '2', name: 'get_course_recommendation', output: { error: 'x' } },
      { id: '3', name: 'another_tool', output: { results: [course] } },
    ]);
    expect(renderResults(results, texts, never).map((one) => [one.className, one.textContent])).toEqual([['hint', texts.toolHint]]);
    for (const odd of [undefined, null, 7, 'x', {}, [null], [{}], [{ name: 'get_course_recommendation', output: 'x' }], [{ name: 'get_course_recommendation', output: { results: 'x' } }], [{ name: 'get_course_recommendation', output: { results: [null, 7, {}] } }], [{ name: 'get_course_detail', output: { course: [] } }]]) {
      expect(renderResults(readResults(odd), texts, never)).toEqual([]);
    }
  });

  test('hostile titles are text', () => {
    const [list] = shown('get_course_recommendation', { results: [{ ...course, title: '<img src=x onerror=alert(1)>', type: '<b>', description: '"><script>1</script>' }] });
    expect(list?.querySelector('img, script, b')).toBeNull();
    expect(list?.querySelector('.name')?.textContent).toContain('<img src=x onerror=alert(1)>');
  });

  test('more courses come by `next` until there is none', async () => {
    const page = vi.fn(() => Promise.resolve({ results: [{ ...course, title: 'Third' }], next: null }));
    const [list] = shown('get_course_recommendation', { count: 2, next: 'http://x/api/v2/course-recommendations/?page=2', results: [course] }, page as never);
    list?.querySelector('button')?.click();
    await vi.waitFor(() => expect(list?.querySelectorAll('.card')).toHaveLength(2));
    expect(page).toHaveBeenCalledWith('http://x/api/v2/course-recommendations/?page=2');
    await vi.waitFor(() => expect(list?.querySelector('button')).toBeNull());
  });
});
