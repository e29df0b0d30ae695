// Builds the page into the Python package. Every address in it is relative to <base> in index.html, so that the
// server can serve it below any prefix.
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

/** What only pages with plots need, and much of it. */
const PLOTS = /\/(echarts|zrender|tslib)\/|\/charts\/(Chart|options|echarts)\.tsx?$/;

export default defineConfig(({ command }) => ({
  base: command === "serve" ? "/console/" : "./",
  plugins: [react()],
  resolve: {
    // The form library names it in a helper for tests; it makes code at run time, which the page's policy forbids.
    alias: { "@rjsf/validator-ajv8": new URL("./src/forms/validator.ts", import.meta.url).pathname },
  },
  build: {
    outDir: "../server/orsay/console/static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false }, // it would be an inline script
    assetsInlineLimit: 0, // fonts and images stay files: the policy allows them from here only
    license: { fileName: "licenses.md" },
    chunkSizeWarningLimit: 1500,
    rolldownOptions: {
      output: {
        // A file for each page, and two that they share: many small ones would take longer to fetch.
        codeSplitting: {
          groups: [
            { name: "shared", priority: 2, minShareCount: 2, test: (id: string) => !PLOTS.test(id) },
            { name: "plots", priority: 1, test: PLOTS },
          ],
        },
      },
    },
  },
  server: {
    // `npm run dev` beside `orsay serve` on its usual port
    proxy: {
      "^/(?!console/)": "http://127.0.0.1:8080",
      "/console/api": "http://127.0.0.1:8080",
    },
  },
}));
