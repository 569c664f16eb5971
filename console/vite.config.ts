/// <reference types="vitest/config" />
import { gzipSync } from 'node:zlib';
import { defineConfig, type Plugin } from 'vite';

/** What a browser may load for the first page, and for all pages together, in bytes of gzip. */
const FIRST_PAGE = 150_000;
const ALL_PAGES = 250_000;

/** Fails the build when the scripts are larger than promised. */
function sizeLimits(): Plugin {
  return {
    name: 'size-limits',
    generateBundle(_options, bundle) {
      const chunks = Object.values(bundle).flatMap((file) => (file.type === 'chunk' ? [file] : []));
      const size = (code: string) => gzipSync(code, { level: 9 }).length;
      const byName = new Map(chunks.map((chunk) => [chunk.fileName, chunk]));
      const first = new Set<string>();
      const visit = (name: string): void => {
        const chunk = byName.get(name);
        if (!chunk || first.has(name)) return;
        first.add(name);
        chunk.imports.forEach(visit);
      };
      chunks.filter((chunk) => chunk.isEntry).forEach((chunk) => visit(chunk.fileName));
      const total = chunks.reduce((sum, chunk) => sum + size(chunk.code), 0);
      const largestPage = Math.max(
        0,
        ...chunks.filter((chunk) => chunk.isDynamicEntry).map((chunk) => size(chunk.code)),
      );
      const start = [...first].reduce((sum, name) => sum + size(byName.get(name)?.code ?? ''), 0) + largestPage;
      this.info(`first page ${start} bytes, all pages ${total} bytes (gzip)`);
      if (start > FIRST_PAGE) this.error(`the first page needs ${start} bytes of script; the limit is ${FIRST_PAGE}`);
      if (total > ALL_PAGES) this.error(`all pages need ${total} bytes of script; the limit is ${ALL_PAGES}`);
    },
  };
}

export default defineConfig({
  base: '/console/',
  plugins: [sizeLimits()],
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    target: 'es2022',
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    emptyOutDir: true,
  },
  server: { proxy: { '/admin': 'http://127.0.0.1:8080', '/v1': 'http://127.0.0.1:8080', '/api': 'http://127.0.0.1:8080' } },
  test: { include: ['src/**/*.test.ts'] },
});
