// Checkbox of a row.

export function Tick({
  checked,
  onChange,
  label,
  tabIndex,
}: {
  checked: boolean;
  onChange: () => void;
  label: string;
  tabIndex?: number;
}) {
  return <input type="checkbox" className="tick" checked={checked} onChange={onChange} aria-label={label} tabIndex={tabIndex} />;
}
