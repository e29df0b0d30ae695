// Blocks as the model gets them: text as it is typed, images as images.
import { Image, Stack, Text } from "@mantine/core";

import { pretty } from "../format";
import type { Message } from "../api/types";

/** Kinds of images that a browser shows without running anything in them. */
const SHOWN = /^image\/(png|jpeg|gif|webp|avif|bmp)$/;

export function BlockList({ blocks }: { blocks: Message["blocks"] }) {
  return (
    <Stack gap="xs">
      {blocks.map((block, index) => (
        <OneBlock key={index} block={block} name={`Image ${index + 1}`} />
      ))}
    </Stack>
  );
}

function OneBlock({ block, name }: { block: Message["blocks"][number]; name: string }) {
  if (block.type === "image") {
    if (!SHOWN.test(block.mimeType)) {
      return (
        <Text size="sm" c="dimmed">
          Images of type {block.mimeType} are not displayed.
        </Text>
      );
    }
    return (
      <Image
        src={`data:${block.mimeType};base64,${block.data}`}
        alt={name}
        w="auto"
        maw="100%"
        mah={480}
        fit="contain"
        radius="sm"
        style={{ alignSelf: "flex-start", imageRendering: "auto" }}
      />
    );
  }
  if ("text" in block) {
    return (
      <Text size="sm" className="as-typed" ff="monospace">
        {block.text}
      </Text>
    );
  }
  return (
    <Text size="sm" className="as-typed" ff="monospace">
      {pretty(block)}
    </Text>
  );
}
