// The same request for a terminal, Python and TypeScript.

import { NO_SESSION, ROUTES, type Settings } from './model';

export type Language = 'curl' | 'python' | 'typescript';

const indent = (text: string, by: string): string => text.replaceAll('\n', `\n${by}`);

export function snippet(language: Language, settings: Settings, body: Record<string, unknown>, origin: string): string {
  const route = ROUTES[settings.door];
  if (settings.door === 'execute') return executeSnippet(language, settings, body, origin);
  const json = JSON.stringify(body, null, 2);
  if (language === 'curl') {
    const accept = settings.door === 'assistant' ? " \\\n  -H 'Accept: text/event-stream'" : '';
    return `curl -sN ${origin}${route} \\\n  -H "Authorization: Bearer $AMALGAM_KEY"${accept} \\\n  -H 'Content-Type: application/json' \\\n  -d '${json.replaceAll("'", "'\\''")}'\n`;
  }
  if (language === 'python') {
    if (settings.door === 'responses') {
      const { stream: _stream, ...rest } = body;
      const fields = Object.entries(rest).map(([name, value]) => `    ${name}=${indent(python(value), '    ')},`);
      return `import os\nfrom openai import OpenAI\n\nclient = OpenAI(base_url="${origin}/v1", api_key=os.environ["AMALGAM_KEY"])\n\nwith client.responses.stream(\n${fields.join('\n')}\n) as stream:\n    for event in stream:\n        if event.type == "response.output_text.delta":\n            print(event.delta, end="", flush=True)\n`;
    }
    return `import json, os, urllib.request\n\nbody = ${python(body)}\nrequest = urllib.request.Request(\n    "${origin}${route}",\n    data=json.dumps(body).encode(),\n    headers={\n        "Authorization": f"Bearer {os.environ['AMALGAM_KEY']}",\n        "Content-Type": "application/json",\n        "Accept": "text/event-stream",\n    },\n)\nwith urllib.request.urlopen(request) as response:\n    for line in response:\n        print(line.decode(), end="")\n`;
  }
  if (settings.door === 'responses') {
    return `import OpenAI from "openai";\n\nconst client = new OpenAI({ baseURL: "${origin}/v1", apiKey: process.env.AMALGAM_KEY });\n\nconst stream = await client.responses.create(${json});\nfor await (const event of stream) {\n  if (event.type === "response.output_text.delta") process.stdout.write(event.delta);\n}\n`;
  }
  return `const response = await fetch("${origin}${route}", {\n  method: "POST",\n  headers: {\n    Authorization: \`Bearer \${process.env.AMALGAM_KEY}\`,\n    "Content-Type": "application/json",\n    Accept: "text/event-stream",\n  },\n  body: JSON.stringify(${indent(json, '  ')}),\n});\nfor await (const chunk of response.body.pipeThrough(new TextDecoderStream())) process.stdout.write(chunk);\n`;
}

/** The execute API needs a session, which comes first unless the playground has one. */
function executeSnippet(language: Language, settings: Settings, body: Record<string, unknown>, origin: string): string {
  const opened = body.SessionId !== NO_SESSION;
  const session = { ...(settings.model && { AgentContextId: settings.model }), ...(settings.mode && { Mode: settings.mode }) };
  const sessions = `${origin}/api/agent/sessions`;
  const execute = origin + ROUTES.execute;
  const shell = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;
  if (language === 'curl') {
    const head = `  -H "Authorization: Bearer $AMALGAM_KEY" -H 'Content-Type: application/json' \\\n`;
    const open = opened ? '' : `session=$(curl -s ${sessions} \\\n${head}  -d ${shell(JSON.stringify(session))} | jq -r .SessionId)\n\n`;
    const sent = shell(JSON.stringify(body, null, 2)).replace(NO_SESSION, `'"$session"'`);
    return `${open}curl -sN ${execute} \\\n${head}  -d ${sent}\n`;
  }
  if (language === 'python') {
    const open = opened ? '' : `session = post("${sessions}", ${python(session)})\nsession_id = json.load(session)["SessionId"]\n\n`;
    const sent = python(body).replace(`"${NO_SESSION}"`, 'session_id');
    return `import json, os, urllib.request\n\n\ndef post(url, body):\n    headers = {\n        "Authorization": f"Bearer {os.environ['AMALGAM_KEY']}",\n        "Content-Type": "application/json",\n    }\n    return urllib.request.urlopen(urllib.request.Request(url, data=json.dumps(body).encode(), headers=headers))\n\n\n${open}for line in post("${execute}", ${sent}):\n    print(line.decode(), end="")\n`;
  }
  const open = opened ? '' : `const session = await post("${sessions}", ${JSON.stringify(session)});\nconst { SessionId } = await session.json();\n\n`;
  const sent = JSON.stringify(body, null, 2).replace(`"SessionId": "${NO_SESSION}"`, 'SessionId');
  return `const post = (url, body) =>\n  fetch(url, {\n    method: "POST",\n    headers: { Authorization: \`Bearer \${process.env.AMALGAM_KEY}\`, "Content-Type": "application/json" },\n    body: JSON.stringify(body),\n  });\n\n${open}const response = await post("${execute}", ${sent});\nfor await (const chunk of response.body.pipeThrough(new TextDecoderStream())) process.stdout.write(chunk);\n`;
}

/** A value as Python writes it. */
export function python(value: unknown, depth = 0): string {
  const pad = '    '.repeat(depth + 1);
  const end = '    '.repeat(depth);
  if (value === null || value === undefined) return 'None';
  if (value === true) return 'True';
  if (value === false) return 'False';
  if (Array.isArray(value)) return value.length ? `[\n${value.map((one) => `${pad}${python(one, depth + 1)},`).join('\n')}\n${end}]` : '[]';
  if (typeof value === 'object') {
    const entries = Object.entries(value);
    return entries.length ? `{\n${entries.map(([name, one]) => `${pad}${JSON.stringify(name)}: ${python(one, depth + 1)},`).join('\n')}\n${end}}` : '{}';
  }
  return JSON.stringify(value);
}
