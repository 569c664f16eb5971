// A form from a JSON Schema: one field for each property of an object.

export interface FormField {
  name: string;
  type: 'text' | 'number' | 'boolean' | 'choice' | 'json';
  required: boolean;
  description: string;
  options: string[];
}

type Schema = Record<string, unknown>;

export function fieldsOf(schema: unknown): FormField[] {
  const { properties, required } = (schema ?? {}) as { properties?: Record<string, Schema>; required?: string[] };
  return Object.entries(properties ?? {}).map(([name, property]) => {
    const types = [property.type].flat().filter((type) => type !== 'null');
    const options = Array.isArray(property.enum) ? property.enum.filter((value) => value !== null).map(String) : [];
    const type = options.length ? 'choice' : types.includes('string') ? 'text' : types.includes('integer') || types.includes('number') ? 'number' : types.includes('boolean') ? 'boolean' : 'json';
    return { name, type, required: required?.includes(name) ?? false, description: String(property.description ?? ''), options };
  });
}

/** The values of a form as arguments; empty fields are left out. Throws for text that is no JSON where JSON is needed. */
export function argumentsOf(fields: FormField[], values: Record<string, string>): Record<string, unknown> {
  const result: Record<string, unknown> = {};
  for (const field of fields) {
    const text = values[field.name] ?? '';
    if (text === '' && field.type !== 'boolean') continue;
    if (field.type === 'number') result[field.name] = Number(text);
    else if (field.type === 'boolean') {
      if (text) result[field.name] = text === 'true';
    } else if (field.type === 'json') {
      try {
        result[field.name] = JSON.parse(text);
      } catch (error) {
        throw new Error(`${field.name}: ${(error as Error).message}`);
      }
    } else result[field.name] = text;
  }
  return result;
}
