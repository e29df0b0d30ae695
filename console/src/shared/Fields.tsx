// Labelled inputs as plain elements: a page with a dozen of them is there in a moment.
import { ChevronDown, Search } from "lucide-react";
import { useId, type ComponentProps, type ReactNode } from "react";

export interface Option {
  value: string;
  label: string;
}

interface Labelled {
  label: string;
}

/** `children` makes the input, with the id that the label is for, and its icons. */
export function Field({ label, children }: Labelled & { children: (id: string) => ReactNode }) {
  const id = useId();
  return (
    <div>
      <label className="field-label" htmlFor={id}>
        {label}
      </label>
      <div className="field-place">{children(id)}</div>
    </div>
  );
}

interface SelectFieldProps extends Labelled {
  value: string;
  options: readonly Option[];
  onChange: (value: string) => void;
}

export function SelectField({ label, value, options, onChange }: SelectFieldProps) {
  return (
    <Field label={label}>
      {(id) => (
        <>
          <select id={id} className="field-input" value={value} onChange={(event) => onChange(event.currentTarget.value)}>
            {options.map((option) => (
              <option key={option.value} value={option.value}>
                {option.label}
              </option>
            ))}
          </select>
          <ChevronDown size={16} aria-hidden className="field-icon field-icon-right" />
        </>
      )}
    </Field>
  );
}

/** `sought`: with a magnifying glass before the text. */
export function TextField({ label, sought = false, ...input }: ComponentProps<"input"> & Labelled & { sought?: boolean }) {
  return (
    <Field label={label}>
      {(id) => (
        <>
          {sought && <Search size={16} aria-hidden className="field-icon field-icon-left" />}
          <input type="text" {...input} id={id} className={sought ? "field-input field-before" : "field-input"} />
        </>
      )}
    </Field>
  );
}
