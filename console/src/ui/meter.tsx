// How much of an amount is used.

export function Meter(props: { used: number; reserved?: number; limit: number; text: string; note?: string }) {
  const share = (value: number): number => (props.limit > 0 ? Math.min(100, (value / props.limit) * 100) : 100);
  const used = share(props.used);
  const all = share(props.used + (props.reserved ?? 0));
  const tone = all >= 100 ? 'full' : all >= 80 ? 'near' : '';
  return (
    <div class="meter-block">
      <span class="small nowrap">{props.text}</span>
      <div class={`meter ${tone}`} role="meter" aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(all)} aria-label={props.text}>
        <span class="meter-reserved" style={{ width: `${all}%` }} />
        <span class="meter-used" style={{ width: `${used}%` }} />
      </div>
      {props.note && <span class="small muted nowrap">{props.note}</span>}
    </div>
  );
}
