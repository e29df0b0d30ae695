// Modules that follow from where the page is read this when they are loaded.
import { vi } from "vitest";

vi.stubGlobal("document", { baseURI: "http://host/prefix/console/" });
