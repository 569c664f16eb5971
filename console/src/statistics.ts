// Small statistics of lists of numbers.

/** The value below which this share of the values is; none for no values. */
export function percentile(values: number[], percent: number): number | null {
  if (!values.length) return null;
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[Math.min(sorted.length - 1, Math.ceil((percent / 100) * sorted.length) - 1)] ?? null;
}
