/** How many commands are remembered at most. Beyond that the oldest is forgotten, and is then as new. */
const maxDoubts = 10_000;

export type Outcome = "not_applied" | "applied" | "unknown";

/**
 * Remembers the commands whose outcome is unknown: an attempt got no answer, or the answer "unknown". That attempt may have been carried
 * out, or may still be on its way to the server. Only an answer that the server stores under the key settles it; every other answer speaks of
 * its own attempt alone. See docs/design/outcomes.md.
 */
export class Doubts {
  readonly #commands = new Set<string>();

  /** Notes that an attempt got no answer. */
  unanswered(command: string): void {
    if (this.#commands.size >= maxDoubts && !this.#commands.has(command)) {
      for (const oldest of this.#commands) {
        this.#commands.delete(oldest);
        break;
      }
    }
    this.#commands.add(command);
  }

  /** Notes that the outcome is known, or that nobody will ask for it again. */
  settled(command: string): void {
    this.#commands.delete(command);
  }

  /** Notes a refusal, and returns what is known of the command's outcome then. */
  refused(command: string, answer: { status: number; retryable: boolean; outcome: Outcome }): Outcome {
    if (answer.outcome === "unknown") {
      this.unanswered(command);
    } else if (stored(answer)) {
      this.settled(command);
    } else if (answer.outcome === "not_applied" && this.#commands.has(command)) {
      return "unknown";
    }
    return answer.outcome;
  }
}

/** Whether the server has stored a refusal under the command's key, so that no other attempt can end differently. */
function stored({ status, retryable }: { status: number; retryable: boolean }): boolean {
  return !retryable && (status === 402 || status === 409 || status === 422);
}
