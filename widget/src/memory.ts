// What survives a reload: the session, and the message whose answer is pending. In sessionStorage, which ends with the tab.

export interface Pending {
  key: string;
  message: string;
  newSession: boolean;
  responseId: string | null;
  /** When it was sent, in milliseconds since 1970. */
  at: number;
}

export interface Remembered {
  sessionId: number | null;
  pending: Pending | null;
  open: boolean;
  /** Whether the next message begins a new session. */
  fresh: boolean;
}

export class Memory {
  private readonly name: string;
  private state: Remembered = { sessionId: null, pending: null, open: false, fresh: false };

  constructor(server: string, agent: string) {
    this.name = `amalgam-assistant ${server} ${agent}`;
    try {
      const found: unknown = JSON.parse(sessionStorage.getItem(this.name) ?? 'null');
      if (typeof found === 'object' && found !== null) this.state = { ...this.state, ...found };
    } catch {
      // A page may forbid storage; then nothing survives a reload.
    }
  }

  get value(): Readonly<Remembered> {
    return this.state;
  }

  set(change: Partial<Remembered>): void {
    this.state = { ...this.state, ...change };
    try {
      sessionStorage.setItem(this.name, JSON.stringify(this.state));
    } catch {
      // As above.
    }
  }
}
