// The difference of two texts, line by line.

export interface DiffLine {
  change: 'same' | 'added' | 'removed';
  line: string;
}

/** The longest common subsequence of lines decides; texts beyond the limit are shown as replaced. */
const MAX_CELLS = 4_000_000;

export function diffLines(before: string, after: string): DiffLine[] {
  const one = before.split('\n');
  const two = after.split('\n');
  let start = 0;
  while (start < one.length && start < two.length && one[start] === two[start]) start += 1;
  let end = 0;
  while (end < one.length - start && end < two.length - start && one[one.length - 1 - end] === two[two.length - 1 - end]) end += 1;
  const left = one.slice(start, one.length - end);
  const right = two.slice(start, two.length - end);
  const same = (lines: string[]): DiffLine[] => lines.map((line) => ({ change: 'same', line }));
  return [...same(one.slice(0, start)), ...middle(left, right), ...same(one.slice(one.length - end))];
}

function middle(left: string[], right: string[]): DiffLine[] {
  const removed = (line: string): DiffLine => ({ change: 'removed', line });
  const added = (line: string): DiffLine => ({ change: 'added', line });
  if (left.length * right.length > MAX_CELLS) return [...left.map(removed), ...right.map(added)];
  const width = right.length + 1;
  const table = new Uint32Array((left.length + 1) * width);
  const at = (row: number, column: number): number => table[row * width + column] ?? 0;
  for (let row = left.length - 1; row >= 0; row -= 1) {
    for (let column = right.length - 1; column >= 0; column -= 1) {
      table[row * width + column] = left[row] === right[column] ? at(row + 1, column + 1) + 1 : Math.max(at(row + 1, column), at(row, column + 1));
    }
  }
  const lines: DiffLine[] = [];
  let row = 0;
  let column = 0;
  while (row < left.length || column < right.length) {
    const a = left[row];
    const b = right[column];
    if (row < left.length && column < right.length && a === b) {
      lines.push({ change: 'same', line: a ?? '' });
      row += 1;
      column += 1;
    } else if (column >= right.length || (row < left.length && at(row + 1, column) >= at(row, column + 1))) {
      lines.push(removed(a ?? ''));
      row += 1;
    } else {
      lines.push(added(b ?? ''));
      column += 1;
    }
  }
  return lines;
}
