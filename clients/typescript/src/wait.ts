const firstPauseMs = 50;
const maxPauseMs = 5_000;

/** A timer for longer than this would end at once. */
export const longestTimerMs = 2 ** 31 - 1;

/** The pause after an attempt, from 1: from 50 ms on, half as long again each time up to 5 s, give or take one half at random. */
export function pauseMs(attempt: number): number {
  return Math.min(maxPauseMs, firstPauseMs * 1.5 ** (attempt - 1)) * (0.5 + Math.random());
}

/** Waits, and reports whether it came to the end: an abort ends it early. */
export function sleep(ms: number, signal?: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    const end = (slept: boolean) => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", aborted);
      resolve(slept);
    };
    const aborted = () => end(false);
    const timer = setTimeout(end, Math.min(ms, longestTimerMs), true);
    signal?.addEventListener("abort", aborted);
    if (signal?.aborted) end(false);
  });
}
