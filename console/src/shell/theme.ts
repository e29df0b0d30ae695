// Colours and shapes of the page. Contrasts are checked by the browser tests, light and dark.
import { Badge, createTheme, Modal, Notification, Select, type CSSVariablesResolver, type MantineColorsTuple } from "@mantine/core";

const lake: MantineColorsTuple = [
  "#e9f4fd",
  "#d5e5f4",
  "#a8c9e6",
  "#78abd8",
  "#5192cc",
  "#3982c5",
  "#1c67ab",
  "#175a97",
  "#114f87",
  "#024376",
];

export const theme = createTheme({
  primaryColor: "lake",
  primaryShade: { light: 7, dark: 7 },
  colors: { lake },
  defaultRadius: "md",
  fontFamily:
    'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "Liberation Sans", Arial, sans-serif',
  fontFamilyMonospace: 'ui-monospace, "Cascadia Code", "SF Mono", Menlo, "DejaVu Sans Mono", Consolas, monospace',
  headings: { fontWeight: "600" },
  cursorType: "pointer",
  respectReducedMotion: true,
  components: {
    Select: Select.extend({ defaultProps: { openOnFocus: false } }),
    Badge: Badge.extend({ defaultProps: { tt: "none", fw: 500 } }),
    Notification: Notification.extend({ defaultProps: { closeButtonProps: { "aria-label": "Dismiss" } } }),
    // the head of a dialog is not the banner of the page
    Modal: Modal.extend({
      defaultProps: { attributes: { header: { role: "none" } }, closeButtonProps: { "aria-label": "Close" } },
    }),
  },
});

/** Texts that Mantine makes too pale for small sizes. */
export const cssVariablesResolver: CSSVariablesResolver = () => ({
  variables: {},
  light: {
    "--mantine-color-dimmed": "var(--mantine-color-gray-7)",
    "--mantine-color-placeholder": "var(--mantine-color-gray-7)",
    "--mantine-color-error": "var(--mantine-color-red-9)",
    "--mantine-color-red-outline": "var(--mantine-color-red-9)",
    "--mantine-color-gray-outline": "var(--mantine-color-gray-7)",
  },
  dark: {
    "--mantine-color-dimmed": "var(--mantine-color-dark-1)",
    "--mantine-color-placeholder": "var(--mantine-color-dark-1)",
    "--mantine-color-anchor": "var(--mantine-color-lake-3)",
    "--mantine-color-error": "var(--mantine-color-red-4)",
    "--mantine-color-red-outline": "var(--mantine-color-red-4)",
    "--mantine-color-gray-outline": "var(--mantine-color-dark-1)",
  },
});
