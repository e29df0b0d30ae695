// Code and JSON as text, with a button that copies it.
import { ActionIcon, Box, Code as Inline, CopyButton, Tooltip } from "@mantine/core";
import { Check, Copy } from "lucide-react";

import { pretty } from "../format";

export function CopyIcon({ text, what }: { text: string; what: string }) {
  return (
    <CopyButton value={text} timeout={2000}>
      {({ copied, copy }) => (
        <Tooltip label={copied ? "Copied" : `Copy ${what}`} withArrow>
          <ActionIcon variant="default" aria-label={copied ? "Copied" : `Copy ${what}`} onClick={copy}>
            {copied ? <Check size={16} aria-hidden /> : <Copy size={16} aria-hidden />}
          </ActionIcon>
        </Tooltip>
      )}
    </CopyButton>
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
