// Blocks of a prompt, a message or a result. Texts can be long here, so they are cut until one asks for them.
import type { Message } from "../../api/types";
import { BlockList } from "../../shared/BlockList";
import { Long, Value } from "./Value";

export function Blocks({ blocks }: { blocks: Message["blocks"] }) {
  if (blocks.length === 0) return <p className="plain small dimmed">nothing</p>;
  return (
    <div className="stack">
      {blocks.map((block, index) => (
        <One key={index} block={block} />
      ))}
    </div>
  );
}

function One({ block }: { block: Message["blocks"][number] }) {
  if (block.type === "text") return <Long text={block.text} />;
  if (block.type === "tool_call") return <Labelled label={`calls ${block.name}`} value={block.input} />;
  if (block.type === "reasoning") return <Labelled label="reasoning" value={block.text} />;
  if (block.type === "tool_result") return <Blocks blocks={block.blocks} />;
  return <BlockList blocks={[block]} />;
}

function Labelled({ label, value }: { label: string; value: unknown }) {
  return (
    <div>
      <p className="plain smaller dimmed">{label}</p>
      <Value value={value} />
    </div>
  );
}
