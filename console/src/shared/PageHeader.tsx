// The heading of a page, which is also the title of the tab.
import { Group, Stack, Text, Title } from "@mantine/core";
import { type ReactNode, useEffect } from "react";

export function PageHeader({
  title,
  about,
  actions,
}: {
  title: string;
  about?: ReactNode;
  /** Buttons at the right. */
  actions?: ReactNode;
}) {
  useEffect(() => {
    document.title = `${title} · Orsay`;
  }, [title]);
  return (
    <Group justify="space-between" align="flex-start" mb="lg" gap="sm">
      <Stack gap={2} style={{ minWidth: 0, flex: "1 1 260px" }}>
        <Title order={1} size="h2" className="wrap-anywhere">
          {title}
        </Title>
        {about !== undefined && (
          <Text c="dimmed" size="sm" component="div">
            {about}
          </Text>
        )}
      </Stack>
      {actions !== undefined && <Group gap="xs">{actions}</Group>}
    </Group>
  );
}
