// Light, dark, or what the system says; the choice is remembered under the name that public/scheme.js reads.
import { localStorageColorSchemeManager } from "@mantine/core";

export const schemeManager = localStorageColorSchemeManager({ key: "orsay-scheme" });
