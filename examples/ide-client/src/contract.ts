// The strict turn contract as types: what is sent to `/api/agent/…`, and what comes back.

/** A session as the server tells it. Times are seconds since 1970. */
export interface Session {
  SessionId: string;
  AgentContextId: string | null;
  Mode: string;
  Turns: number;
  PendingTurnId: string | null;
  CreatedAt: number;
  UpdatedAt: number;
}

/** A file of the workspace with its contents. */
export interface InputArtifact {
  RelativePath: string;
  FileName: string;
  Contents: string;
  Origin: 'ide' | 'user';
  MimeType?: string;
  Language?: string;
  Encoding?: 'utf8' | 'base64';
}

/** A condition on what the server looks up. All conditions of a request hold at once. */
export interface ScopeCondition {
  Key: string;
  Operator: '==' | '!=' | 'contains' | 'does_not_contain';
  Values: string[];
}

/** A new turn: an instruction, files or images. `TurnId` is the client's own, and new for each turn. */
export interface UserTurn {
  SessionId: string;
  TurnId: string;
  Instruction?: string;
  InputArtifacts?: InputArtifact[];
  ClipboardImages?: { Id: string; MimeType: string; DataBase64: string }[];
  FileIds?: string[];
  RagScope?: ScopeCondition[];
  WorkspaceId?: string;
  Repo?: string;
  Language?: string;
  SolutionContextText?: string;
  AgentContextId?: string;
  ConversationContextId?: string;
  RoleId?: string;
  Streaming?: boolean;
}

/** What came of one call: a result or an error, never both. */
export type ToolResult = { ToolCallId: string; ExecutionMs: number } & (
  | { ResultJson: string }
  | { ErrorMessage: string }
);

/** Results for a turn that waits for them, in the order of its calls. Nothing else may be sent with them. */
export interface Continuation {
  SessionId: string;
  TurnId: string;
  ToolResults: ToolResult[];
}

/** A call that the client has to run. `ArgumentsJson` is exactly what the model wrote. */
export interface ToolCall {
  CallId: string;
  Name: string;
  ArgumentsJson: string | null;
}

/** The answer to everything that is sent to `/api/agent/execute`. */
export interface Envelope {
  Kind: 'ok' | 'tool-only' | 'error' | 'empty';
  ConversationId: string;
  TurnId: string | null;
  AgentContextId: string | null;
  ConversationContextId: string | null;
  ResponseContinuationId: string | null;
  Mode: string;
  ModelId: string | null;
  Text: string | null;
  FinishReason: string | null;
  Usage: { PromptTokens: number; CompletionTokens: number; TotalTokens: number };
  Sources: { Id: string; Path: string; StartLine: number; EndLine: number; Language: string }[];
  FileBundle: unknown;
  Warnings: string[];
  ErrorCode: string | null;
  ErrorMessage: string | null;
  RawResponseJson: string | null;
  ToolCalls: ToolCall[];
  /** Only where the request was not taken: everything that was wrong with it. */
  Errors?: { Field: string; Code: string; Message: string }[];
}

/** An event on the way to the answer. `Event` is an event of the Responses API. */
export interface TurnEvent {
  SessionId: string;
  TurnId: string;
  Index: number;
  Event: { type: string; [field: string]: unknown };
}
