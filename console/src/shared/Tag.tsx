// A word on a coloured ground, as it stands in every row of a list.
import type { ReactNode } from "react";

export type TagColour = "red" | "green" | "blue" | "yellow" | "orange" | "gray";

export function Tag({
  colour,
  title,
  small = false,
  className = "",
  children,
}: {
  colour: TagColour;
  /** Text under the pointer. */
  title?: string;
  small?: boolean;
  className?: string;
  children: ReactNode;
}) {
  return (
    <span className={`tag tag-${colour} ${small ? "tag-small " : ""}${className}`} title={title}>
      {children}
    </span>
  );
}
