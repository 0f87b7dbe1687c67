/** What an invitation says, before it is a message. */

/** An invitation to run a task: which, and where it goes. `generation` makes it stale once the task is edited. */
export interface Invitation {
  readonly taskId: string;
  readonly type: string;
  readonly queue: string;
  /** 0 to 9. */
  readonly priority: number;
  readonly generation: number;
}

/** A row of the outbox: the invitations that one transaction made necessary. */
export interface OutboxRow {
  /** Its own id, an int8 as text. */
  readonly id: string;
  readonly invitations: readonly Invitation[];
}
