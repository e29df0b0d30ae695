// URLs of this page and its server: everything follows from <base>, which may stand below a proxy's prefix.

const base = new URL(document.baseURI);

/** The path of the page without its last slash, for the router: `/console`. */
export const consolePath = base.pathname.replace(/\/$/, "");

/** The URL of the ORS server, as a client takes it: without a last slash. */
export const serverUrl = new URL("..", base).href.replace(/\/$/, "");

/** URL of `path` in the console's API. */
export function apiUrl(path: string): string {
  return new URL(`api/${path}`, base).href;
}
