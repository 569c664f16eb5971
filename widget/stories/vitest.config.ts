import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['stories/**/*.story.ts'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // Two cores: one browser at a time.
    fileParallelism: false,
  },
});
