// A field whose text stands in the address: what is typed is shown at once, whenever the address follows.
import { TextInput } from "@mantine/core";
import { Search } from "lucide-react";
import { useEffect, useRef, useState, type RefObject } from "react";

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
  const [typed, setTyped] = useState(value);
  const sent = useRef(value);
  useEffect(() => {
    if (value === sent.current) return;
    sent.current = value; // the back button, or a link
    setTyped(value);
  }, [value]);
  return (
    <TextInput
      ref={field}
      label={label}
      placeholder="a part of it"
      leftSection={<Search size={16} aria-hidden />}
      value={typed}
      onChange={(event) => {
        const next = event.currentTarget.value;
        sent.current = next;
        setTyped(next);
        onChange(next);
      }}
    />
  );
}
