// A query of the journal: as every other one, but a server without a journal is told from one that failed.
import { Text } from "@mantine/core";
import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { RequestError } from "../../api/request";
import { Nothing, Result } from "../../shared/states";

const OFF = 409;

export function Recorded<T>({ of, what, children }: { of: UseQueryResult<T>; what?: string; children: (data: T) => ReactNode }) {
  if (of.data === undefined && of.error instanceof RequestError && of.error.status === OFF) {
    return (
      <Nothing title="Nothing is recorded">
        <Text size="sm">{of.error.message}</Text>
      </Nothing>
    );
  }
  return (
    <Result of={of} what={what}>
      {children}
    </Result>
  );
}
