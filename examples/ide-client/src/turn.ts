// One turn from the user's words to the last answer: every time the model wants tools, they are run here.

import { randomUUID } from 'node:crypto';

import type { AgentClient } from './client.js';
import type { Continuation, Envelope, ToolCall, ToolResult, TurnEvent, UserTurn } from './contract.js';

export interface Hooks {
  /** Runs the calls of one answer and gives their results in the same order. */
  runCalls(calls: ToolCall[]): Promise<ToolResult[]>;
  onEvent?(event: TurnEvent): void;
  /** Hears of everything before it is sent. An IDE writes it down, so that it can send it again after a crash of its own. */
  onSend?(request: UserTurn | Continuation): Promise<void> | void;
}

/** The maximum number of tool rounds in one turn. */
const MOST_ROUNDS = 32;

/** A name that no other turn has. */
export function newTurnId(): string {
  return `turn-${randomUUID()}`;
}

/** Runs a turn to its end, and gives the answers on the way: the last one has no calls left. */
export async function runTurn(client: AgentClient, request: UserTurn | Continuation, hooks: Hooks): Promise<Envelope[]> {
  const answers: Envelope[] = [];
  let next: UserTurn | Continuation = request;
  while (answers.length <= MOST_ROUNDS) {
    await hooks.onSend?.(next);
    const answer = await client.stream(next, (event) => hooks.onEvent?.(event));
    answers.push(answer);
    if (answer.Kind === 'error' || answer.ToolCalls.length === 0) {
      return answers;
    }
    const results = await hooks.runCalls(answer.ToolCalls);
    next = { SessionId: request.SessionId, TurnId: request.TurnId, ToolResults: results };
  }
  throw new Error(`the model still wants tools after ${MOST_ROUNDS} rounds`);
}
