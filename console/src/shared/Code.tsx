// Code and JSON as text, with a button that copies it.
import { ActionIcon, Box, Code as Inline, Tooltip } from "@mantine/core";
import { Check, Copy, X } from "lucide-react";
import { useEffect, useState } from "react";

import { copyText } from "../copy";
import { pretty } from "../format";

type Copied = "no" | "yes" | "failed";

export function CopyIcon({ text, what }: { text: string; what: string }) {
  const [copied, setCopied] = useState<Copied>("no");
  useEffect(() => {
    if (copied === "no") return;
    const timer = setTimeout(() => setCopied("no"), 2000);
    return () => clearTimeout(timer);
  }, [copied]);
  const label = { no: `Copy ${what}`, yes: "Copied", failed: "The browser blocked copying" }[copied];
  const Icon = { no: Copy, yes: Check, failed: X }[copied];
  return (
    <Tooltip label={label} withArrow>
      <ActionIcon
        variant="default"
        aria-label={label}
        onClick={async () => setCopied((await copyText(text)) ? "yes" : "failed")}
      >
        <Icon size={16} aria-hidden />
      </ActionIcon>
    </Tooltip>
  );
}

/** `label` names the text for those who do not see it, and for the button that copies it. */
export function Code({ text, label, maxHeight = 400 }: { text: string; label: string; maxHeight?: number }) {
  return (
    <Box pos="relative">
      <Inline
        block
        tabIndex={0}
        role="region"
        aria-label={label}
        className="as-typed"
        style={{ maxHeight, overflow: "auto", paddingRight: 44 }}
      >
        {text}
      </Inline>
      <Box pos="absolute" top={6} right={6}>
        <CopyIcon text={text} what={label} />
      </Box>
    </Box>
  );
}

export function Json({ value, label, maxHeight }: { value: unknown; label: string; maxHeight?: number }) {
  return <Code text={pretty(value)} label={label} maxHeight={maxHeight} />;
}
