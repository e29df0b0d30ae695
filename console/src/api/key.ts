// The API key of this tab, kept until the tab closes, and whether one has to be asked for.
import { useSyncExternalStore } from "react";

const NAME = "orsay-key";

type KeyState = { key: string | null; wanted: boolean; refused: boolean };

let state: KeyState = { key: stored(), wanted: false, refused: false };
const listeners = new Set<() => void>();

function stored(): string | null {
  try {
    return window.sessionStorage.getItem(NAME);
  } catch {
    return null; // storage is forbidden: the key lasts as long as the page
  }
}

function change(next: KeyState): void {
  state = next;
  for (const listener of listeners) listener();
}

export function currentKey(): string | null {
  return state.key;
}

/** The server refused the key that a request carried: ask for another one. */
export function keyRefused(used: string | null): void {
  if (used === state.key && !state.wanted) change({ ...state, wanted: true, refused: used !== null });
}

export function saveKey(key: string): void {
  try {
    window.sessionStorage.setItem(NAME, key);
  } catch {
    // it lasts as long as the page
  }
  change({ key, wanted: false, refused: false });
}

export function forgetKey(): void {
  try {
    window.sessionStorage.removeItem(NAME);
  } catch {
    // nothing was stored
  }
  change({ key: null, wanted: false, refused: false });
}

export function askForKey(): void {
  change({ ...state, wanted: true, refused: false });
}

export function dismissKey(): void {
  change({ ...state, wanted: false });
}

export function useKey(): KeyState {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => state,
  );
}
