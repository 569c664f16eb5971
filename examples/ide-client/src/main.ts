// Asks the agent about a folder of this machine, in one turn.
//
//   node dist/main.js [--root FOLDER] [--mode NAME] [--drop-after N] INSTRUCTION
//
// AMALGAM_URL and AMALGAM_KEY say where the server is and who asks. `--drop-after 3` hangs up after the third event, to show
// that nothing is lost by it.

import { parseArgs } from 'node:util';

import { AgentClient, Refused } from './client.js';
import type { TurnEvent } from './contract.js';
import { AGENT } from './prepare.js';
import { runCalls } from './tools.js';
import { newTurnId, runTurn } from './turn.js';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    root: { type: 'string', default: '.' },
    mode: { type: 'string' },
    user: { type: 'string' },
    'drop-after': { type: 'string' },
  },
});
const instruction = positionals.join(' ');
if (instruction === '') {
  console.error('usage: node dist/main.js [--root FOLDER] [--mode NAME] [--drop-after N] INSTRUCTION');
  process.exit(2);
}

const { AMALGAM_URL: url = 'http://127.0.0.1:8080', AMALGAM_KEY: key = '' } = process.env;
const dropAfter = values['drop-after'] === undefined ? undefined : Number(values['drop-after']);
const client = new AgentClient({
  url,
  key,
  ...(values.user === undefined ? {} : { user: values.user }),
  ...(dropAfter === undefined ? {} : { dropAfter }),
});

/** What a window would show while the model speaks. */
function show({ Event: event }: TurnEvent): void {
  if (process.stderr.isTTY && event.type === 'response.output_text.delta') {
    process.stderr.write(String(event['delta']));
  }
}

try {
  const session = await client.openSession(AGENT, values.mode);
  console.log(`session ${session.SessionId} in mode ${session.Mode}`);
  const turn = { SessionId: session.SessionId, TurnId: newTurnId(), Instruction: instruction };
  const answers = await runTurn(client, turn, {
    onEvent: show,
    async runCalls(calls) {
      const results = await runCalls(values.root, calls);
      for (const [index, call] of calls.entries()) {
        const result = results[index];
        const failed = result !== undefined && 'ErrorMessage' in result ? `: ${result.ErrorMessage}` : '';
        console.log(`ran ${call.Name} ${call.ArgumentsJson ?? ''}${failed}`);
      }
      return results;
    },
  });
  const last = answers.at(-1);
  if (client.retries > 0) {
    console.log(`sent again ${client.retries} times`);
  }
  console.log(last?.Kind === 'error' ? `failed: ${last.ErrorCode}: ${last.ErrorMessage}` : (last?.Text ?? '(no answer)'));
  process.exitCode = last?.Kind === 'error' ? 1 : 0;
} catch (error) {
  console.error(error instanceof Refused ? error.message : error);
  process.exitCode = 1;
}
