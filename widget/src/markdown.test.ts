import { describe, expect, test } from 'vitest';
import { markdown } from './markdown';

function html(text: string): string {
  const holder = document.createElement('div');
  holder.append(markdown(text, 'new tab'));
  return holder.innerHTML;
}

describe('Markdown', () => {
  test('has paragraphs, emphasis, code, lists, quotes and headings', () => {
    expect(html('One **two** *three*\nfour `a<b`\n\nnext')).toBe('<p>One <strong>two</strong> <em>three</em><br>four <code>a&lt;b</code></p><p>next</p>');
    expect(html('# Title\n- a\n- b\n  1. c\n  2. d\n\nend')).toBe('<p class="heading h1">Title</p><ul><li>a</li><li><p>b</p><ol start="1"><li>c</li><li>d</li></ol></li></ul><p>end</p>');
    expect(html('> quoted\n> more\n\n---\n```js\nlet a = 1;\n<b>\n```')).toBe('<blockquote><p>quoted<br>more</p></blockquote><hr><pre tabindex="0"><code>let a = 1;\n&lt;b&gt;</code></pre>');
    expect(html('snake_case_name and 2 * 3 * 4 \\*stars\\*')).toBe('<p>snake_case_name and 2 * 3 * 4 *stars*</p>');
  });

  test('an unfinished text is shown as far as it goes', () => {
    for (const text of ['**bold', '`code', '[link](http', '```\ncode', '- ', '> ', '1.']) expect(html(text)).toContain('<');
  });

  test('links go to http and https alone, in a tab of their own', () => {
    const link = html('[here](https://example.com/a?b=1) or https://example.com/x.');
    expect(link.match(/<a /g)).toHaveLength(2);
    expect(link).toContain('rel="noopener noreferrer nofollow"');
    expect(link).toContain('href="https://example.com/x"');
    for (const address of ['javascript:alert(1)', 'JaVaScRiPt:alert(1)', 'data:text/html,x', 'vbscript:x', '//evil.example', '/path', 'file:///etc', '&#106;avascript:alert(1)']) {
      expect(html(`[label](${address})`), address).toBe('<p>label</p>');
    }
  });

  test('neither markup nor images of a model come into the page', () => {
    const text = html('<img src=x onerror=alert(1)> <script>alert(1)</script> ![pixel](https://evil.example/p.png) <a href="javascript:1">x</a>');
    expect(text).not.toMatch(/<(img|script)/);
    expect(text.match(/<a /g)).toHaveLength(1);
    expect(text).toContain('href="https://evil.example/p.png"');
  });

  test('text of any form is read in little time', () => {
    for (const text of ['*'.repeat(20_000), '['.repeat(20_000), '`'.repeat(20_000), '> '.repeat(5_000), '_a '.repeat(8_000), '**a '.repeat(5_000), '  '.repeat(3000) + '- a', 'http://'.repeat(3000), '- a\n'.repeat(5000)]) {
      const began = performance.now();
      html(text);
      expect(performance.now() - began, text.slice(0, 20)).toBeLessThan(4000);
    }
  });
});
