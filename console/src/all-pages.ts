// Lists as a whole, for exports.

/** The pages of one list, until there are no more. */
export async function allPages<T>(load: (after: string | number | null) => Promise<{ rows: T[]; next: string | number | null }>): Promise<T[]> {
  const all: T[] = [];
  for (let after: string | number | null = null, first = true; first || after !== null; first = false) {
    const page: { rows: T[]; next: string | number | null } = await load(after);
    all.push(...page.rows);
    after = page.next;
  }
  return all;
}
