// Tests of functions that need no page: those of pages are in tests/console, with a browser.
import { defineConfig } from "vitest/config";

export default defineConfig({ test: { include: ["tests/*.test.ts"], setupFiles: ["tests/setup.ts"] } });
