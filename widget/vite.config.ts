/// <reference types="vitest/config" />
import { gzipSync } from 'node:zlib';
import { defineConfig, type Plugin } from 'vite';

/** What a page loads at most, in bytes of gzip. */
const LIMIT = 45_000;

/** Fails the build when the script is larger than promised. */
function sizeLimit(): Plugin {
  return {
    name: 'size-limit',
    generateBundle(_options, bundle) {
      for (const file of Object.values(bundle)) {
        const size = gzipSync(file.type === 'chunk' ? file.code : file.source, { level: 9 }).length;
        this.info(`${file.fileName}: ${size} bytes (gzip)`);
        if (size > LIMIT) this.error(`${file.fileName} has ${size} bytes (gzip); the limit is ${LIMIT}`);
      }
    },
  };
}

export default defineConfig({
  plugins: [sizeLimit()],
  build: {
    target: 'es2022',
    reportCompressedSize: false,
    emptyOutDir: true,
    // A script that works with and without `type="module"`.
    lib: { entry: 'src/main.ts', formats: ['iife'], name: 'AmalgamAssistant', fileName: () => 'widget.js' },
  },
  test: { include: ['src/**/*.test.ts'], environment: 'jsdom' },
});
