// A field whose text stands in the address: what is typed is shown at once, whenever the address follows.
import type { RefObject } from "react";

import { TextField } from "../../shared/Fields";
import { useAhead } from "./address";

export function SearchText({
  label,
  value,
  onChange,
  field,
}: {
  label: string;
  /** As the address has it. */
  value: string;
  onChange: (value: string) => void;
  field?: RefObject<HTMLInputElement | null>;
}) {
  const { shown, show, sent } = useAhead(value);
  return (
    <TextField
      ref={field}
      label={label}
      placeholder="contains"
      sought
      value={shown}
      onChange={(event) => {
        const next = event.currentTarget.value;
        show(next);
        sent(next);
        onChange(next);
      }}
    />
  );
}
