// What this browser remembers of its viewer. Without storage, as in a private window, a setting lasts as long as the page.
// @ts-check
export function readSetting(key) {
  try { return localStorage.getItem(key); } catch { return null; }
}

// Remembers a text under a key; an empty one forgets it.
export function saveSetting(key, text) {
  try {
    if (text) { localStorage.setItem(key, text); } else { localStorage.removeItem(key); }
  } catch { /* no storage */ }
}
