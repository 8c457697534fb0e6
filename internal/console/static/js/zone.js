// The time zone in which times are shown: this browser keeps the choice.
const kept = "fairlead.zone";

export const here = Intl.DateTimeFormat().resolvedOptions().timeZone;

// zone is the chosen one: UTC, or undefined for the browser's own.
export function zone() {
  try {
    return localStorage.getItem(kept) === "UTC" ? "UTC" : undefined;
  } catch {
    return undefined; // The browser keeps nothing.
  }
}

export function choose(name) {
  try {
    localStorage.setItem(kept, name);
  } catch {
    // As above.
  }
}

// instant reads what a field of the type datetime-local has, as a time in the chosen zone.
export const instant = (text) => new Date(zone() ? `${text}Z` : text).toISOString();
