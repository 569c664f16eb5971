// Turns the events of the three APIs into an answer.

import type { ServerEvent } from '../api/sse';
import type { CallView } from '../items';
import type { Turn } from './model';

type Data = Record<string, any>;

/** Adds an event that arrived so many milliseconds after the request. Changes the turn, which is a draft of its owner. */
export function apply(turn: Turn, event: ServerEvent, at: number): void {
  const last = turn.events[turn.events.length - 1];
  let data: Data;
  try {
    data = JSON.parse(event.data) as Data;
  } catch {
    data = {};
  }
  const type = event.event === 'message' ? String(data.type ?? 'message') : event.event;
  turn.events.push({ type, at, gap: last ? at - last.at : at, data: event.data });
  if (typeof data.Type === 'string') {
    if (data.Final && data.Result) finishExecute(turn, data.Result as Data);
    else if (data.Event) applyResponse(turn, data.Event as Data, at);
  } else if (typeof data.type === 'string') applyResponse(turn, data, at);
  else applyAssistant(turn, type, data, at);
}

function first(turn: Turn, at: number): void {
  turn.firstMs ??= at;
}

function applyResponse(turn: Turn, data: Data, at: number): void {
  switch (data.type) {
    case 'response.created':
      turn.responseId = data.response?.id ?? turn.responseId;
      break;
    case 'response.output_text.delta':
    case 'response.refusal.delta':
      first(turn, at);
      turn.text += data.delta ?? '';
      break;
    case 'response.reasoning_summary_text.delta':
    case 'response.reasoning_text.delta':
      first(turn, at);
      turn.reasoning += data.delta ?? '';
      break;
    case 'response.output_item.added':
    case 'response.output_item.done':
      applyItem(turn, data.item as Data, at);
      break;
    case 'response.completed':
    case 'response.failed':
    case 'response.incomplete':
    case 'response.cancelled':
      finish(turn, data.response as Data);
      break;
    case 'error':
      turn.status = 'failed';
      turn.error = data.error?.message ?? data.message ?? 'error';
      break;
    default:
  }
}

function applyItem(turn: Turn, item: Data | undefined, at: number): void {
  if (!item || !['function_call', 'custom_tool_call', 'mcp_call'].includes(String(item.type))) return;
  first(turn, at);
  const view: CallView = {
    kind: 'call',
    name: String(item.name ?? ''),
    arguments: String(item.arguments ?? item.input ?? ''),
    output: item.output === undefined || item.output === null ? null : String(item.output),
    error: item.error ? String(item.error.message ?? JSON.stringify(item.error)) : null,
    status: item.status ?? null,
    id: item.id,
    callId: item.type === 'mcp_call' ? undefined : item.call_id,
  };
  const index = turn.calls.findIndex((call) => call.id === view.id);
  if (index >= 0) turn.calls[index] = view;
  else turn.calls.push(view);
}

function finish(turn: Turn, response: Data | undefined): void {
  turn.responseId = response?.id ?? turn.responseId;
  turn.model = response?.amalgam?.model ?? response?.model ?? turn.model;
  if (response?.usage) turn.usage = { input: response.usage.input_tokens ?? 0, output: response.usage.output_tokens ?? 0 };
  const status = String(response?.status ?? 'completed');
  turn.status = status === 'failed' ? 'failed' : status === 'incomplete' ? 'incomplete' : status === 'cancelled' ? 'stopped' : 'completed';
  if (response?.error) turn.error = String(response.error.message ?? response.error.code);
  if (turn.status === 'completed' && turn.calls.some((call) => call.callId && call.output === null)) turn.status = 'waiting';
}

function finishExecute(turn: Turn, result: Data): void {
  turn.text = String(result.Text ?? turn.text);
  turn.model = result.ModelId ?? turn.model;
  turn.responseId = result.ResponseContinuationId ?? turn.responseId;
  if (result.Usage) turn.usage = { input: result.Usage.InputTokens ?? result.Usage.PromptTokens ?? 0, output: result.Usage.OutputTokens ?? result.Usage.CompletionTokens ?? 0 };
  const open = (result.ToolCalls ?? []) as Data[];
  for (const call of open) {
    const known = turn.calls.find((one) => one.callId === call.CallId);
    if (!known) turn.calls.push({ kind: 'call', name: call.Name, arguments: call.ArgumentsJson, output: null, error: null, status: null, id: call.CallId, callId: call.CallId });
  }
  if (result.Kind === 'error') {
    turn.status = 'failed';
    turn.error = [result.ErrorCode, result.ErrorMessage].filter(Boolean).join(': ');
  } else turn.status = open.length ? 'waiting' : 'completed';
}

function applyAssistant(turn: Turn, type: string, data: Data, at: number): void {
  switch (type) {
    case 'message.delta':
      first(turn, at);
      turn.text += data.delta ?? '';
      break;
    case 'tool_call':
      first(turn, at);
      turn.calls.push({ kind: 'call', name: data.name, arguments: data.arguments ?? '', output: null, error: null, status: null, id: data.id });
      break;
    case 'tool_result': {
      const call = turn.calls.find((one) => one.id === data.id);
      if (call) call.output = typeof data.output === 'string' ? data.output : JSON.stringify(data.output);
      break;
    }
    case 'done':
      turn.text = data.message ?? turn.text;
      turn.model = data.model ?? turn.model;
      turn.responseId = data.response_id ?? turn.responseId;
      turn.status = 'completed';
      break;
    case 'error':
      turn.status = 'failed';
      turn.error = data.detail ?? 'error';
      break;
    default:
  }
}
