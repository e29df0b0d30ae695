// The three states that every page has beside its content: waiting, failed, and nothing there yet.
import { Alert, Button, Center, Loader, Stack, Text, Title } from "@mantine/core";
import type { UseQueryResult } from "@tanstack/react-query";
import { Inbox, RefreshCw, TriangleAlert } from "lucide-react";
import type { ReactNode } from "react";

import { askForKey } from "../api/key";
import { RequestError } from "../api/request";

export function Waiting({ what = "Loading" }: { what?: string }) {
  return (
    <Center py="xl" role="status" aria-live="polite">
      <Stack align="center" gap="xs">
        <Loader size="sm" aria-hidden />
        <Text size="sm" c="dimmed">
          {what}…
        </Text>
      </Stack>
    </Center>
  );
}

export function Failure({ error, retry, title }: { error: unknown; retry?: () => void; title?: string }) {
  const refused = error instanceof RequestError && error.wantsKey;
  return (
    <Alert
      color="red"
      variant="outline"
      role="alert"
      icon={<TriangleAlert size={18} aria-hidden />}
      title={title ?? (refused ? "A key is needed" : "This could not be loaded")}
    >
      <Stack gap="sm" align="flex-start">
        <Text size="sm" className="wrap-anywhere">
          {error instanceof Error ? error.message : String(error)}
        </Text>
        {refused ? (
          <Button size="xs" variant="default" onClick={askForKey}>
            Enter a key
          </Button>
        ) : (
          retry && (
            <Button size="xs" variant="default" leftSection={<RefreshCw size={14} aria-hidden />} onClick={retry}>
              Try again
            </Button>
          )
        )}
      </Stack>
    </Alert>
  );
}

/** Empty state, with what to do about it (`children`). */
export function Nothing({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <Center py="xl">
      <Stack align="center" gap="sm" maw={560} ta="center">
        <Inbox size={36} strokeWidth={1.4} aria-hidden />
        <Title order={2} size="h4">
          {title}
        </Title>
        {children}
      </Stack>
    </Center>
  );
}

/** Shows a query: waiting, failed, or its data. What was loaded before stays while it loads again. */
export function Result<T>({
  of,
  what,
  children,
}: {
  of: UseQueryResult<T>;
  what?: string;
  children: (data: T) => ReactNode;
}) {
  if (of.data !== undefined) {
    return (
      <>
        {of.isError && <Failure error={of.error} retry={() => void of.refetch()} title="This may be out of date" />}
        {children(of.data)}
      </>
    );
  }
  if (of.isError) return <Failure error={of.error} retry={() => void of.refetch()} />;
  return <Waiting what={what} />;
}
