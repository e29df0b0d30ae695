// The runs as a whole beside each other, and whether the difference to the first one is more than chance.
import { Table, Text, Title } from "@mantine/core";

import type { RunSummary, Series } from "../../api/types";
import { differenceOf, isClear, type Interval } from "../../charts/statistics";
import { count, NONE, number, percent } from "../../format";
import { signed, withInterval } from "./words";

export function Totals({ series, runs, success }: { series: Series[]; runs: RunSummary[]; success: number }) {
  const rows = series.map(({ run }) => ({ name: run, run: runs.find((other) => other.run === run) }));
  const first = rows[0]?.run;
  return (
    <section aria-label="Whole runs">
      <Title order={2} size="h5" mb={6}>
        Whole runs
      </Title>
      <div className="scroll-x" tabIndex={0} role="region" aria-label="Table of whole runs">
        <Table withTableBorder verticalSpacing={6}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Run</Table.Th>
              <Table.Th ta="right">Episodes</Table.Th>
              <Table.Th ta="right">Mean reward</Table.Th>
              {rows.length > 1 && <Table.Th>Difference from the first</Table.Th>}
              <Table.Th ta="right">Success</Table.Th>
              <Table.Th ta="right">Length</Table.Th>
              <Table.Th ta="right">Faults</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {rows.map(({ name, run }, index) => (
              <Table.Tr key={name}>
                <Table.Th scope="row" className="wrap-anywhere">
                  {name}
                </Table.Th>
                <Table.Td ta="right" className="numeric">
                  {count(run?.episodes)}
                </Table.Td>
                <Table.Td ta="right" className="numeric">
                  {withInterval(run?.reward_mean, run?.reward_low, run?.reward_high)}
                </Table.Td>
                {rows.length > 1 && <Table.Td>{index === 0 ? NONE : <Difference first={first} other={run} />}</Table.Td>}
                <Table.Td ta="right" className="numeric">
                  {percent(run?.success)}
                </Table.Td>
                <Table.Td ta="right" className="numeric">
                  {number(run?.length_mean, 1)}
                </Table.Td>
                <Table.Td ta="right" className="numeric">
                  {percent(run?.fault_rate)}
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </div>
      <Text size="xs" c="dimmed" mt={4}>
        {`All environments and splits; a success has a reward of ${success} or more. Intervals are 95%.`}
      </Text>
    </section>
  );
}

function reward(run: RunSummary): Interval | null {
  return run.reward_mean === null ? null : { mean: run.reward_mean, low: run.reward_low, high: run.reward_high };
}

function Difference({ first, other }: { first: RunSummary | undefined; other: RunSummary | undefined }) {
  const one = first && reward(first);
  const two = other && reward(other);
  if (!one || !two) return <>{NONE}</>;
  const difference = differenceOf(one, two);
  const clear = isClear(difference);
  return (
    <Text size="sm" component="span" className="numeric">
      {withInterval(difference.mean, difference.low, difference.high, signed)}
      {clear !== null && (clear ? ", more than chance" : ", may be chance")}
    </Text>
  );
}
