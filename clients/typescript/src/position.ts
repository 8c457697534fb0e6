/**
 * The last place in the database's log that an answer has told (PostgreSQL's LSN). A read that names it sees what this client has
 * written, also where a standby answers.
 */
export class Position {
  #last = 0n;
  #text: string | undefined;

  /** The header's value for a read; undefined where no answer has told a place yet. */
  get value(): string | undefined {
    return this.#text;
  }

  /** Notes an answer's place. Answers may come out of order, so an earlier one changes nothing. */
  note(text: string | null): void {
    const parts = /^([0-9A-Fa-f]{1,8})\/([0-9A-Fa-f]{1,8})$/.exec(text ?? "");
    if (!parts) return;
    const at = (BigInt(`0x${parts[1]}`) << 32n) | BigInt(`0x${parts[2]}`);
    if (at > this.#last) [this.#last, this.#text] = [at, parts[0]];
  }
}
