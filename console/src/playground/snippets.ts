// The same request for a terminal, Python and TypeScript.

import { ROUTES, type Settings } from './model';

export type Language = 'curl' | 'python' | 'typescript';

const indent = (text: string, by: string): string => text.replaceAll('\n', `\n${by}`);

export function snippet(language: Language, settings: Settings, body: Record<string, unknown>, origin: string): string {
  const route = ROUTES[settings.door];
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
