// All runs: what clients named so, and by day what they did not name.
import { Anchor, Badge, Button, Checkbox, Group, Stack, Table, Text } from "@mantine/core";
import { GitCompare } from "lucide-react";
import { useRef } from "react";
import { Link, useNavigate } from "react-router";

import type { Run } from "../../api/types";
import { count, number, percent } from "../../format";
import { PageHeader } from "../../shared/PageHeader";
import { Nothing } from "../../shared/states";
import { When } from "../../shared/When";
import { Recorded } from "../trajectories/Recorded";
import { useAddress } from "../trajectories/address";
import { KeyHelp, moveFocus, type KeyAction } from "../trajectories/keys";
import { useMarks } from "../trajectories/marks";
import { SearchText } from "../trajectories/SearchText";
import "../trajectories/trajectories.css";
import { MOST_COMPARED } from "./Compare";
import { useRuns } from "./queries";
import { share, withInterval } from "./words";

export function Runs() {
  const [search, change] = useAddress();
  const navigate = useNavigate();
  const found = useRuns();
  const field = useRef<HTMLInputElement>(null);
  const text = search.get("text") ?? "";
  const [marked, mark] = useMarks("run", MOST_COMPARED);
  const known = found.data ?? [];
  const shown = known.filter(({ run }) => run.toLowerCase().includes(text.toLowerCase()));

  const focused = () => (document.activeElement as HTMLElement | null)?.dataset.row;
  const actions: KeyAction[] = [
    { keys: ["j", "ArrowDown"], does: "next run", run: () => moveFocus("[data-row]", 1) },
    { keys: ["k", "ArrowUp"], does: "previous run", run: () => moveFocus("[data-row]", -1) },
    { keys: ["x"], does: "mark for a comparison", run: () => focused() !== undefined && mark(focused() ?? "") },
    { keys: ["c"], does: "compare those that are marked", run: () => marked.length > 0 && void navigate(compareAddress(marked)) },
    { keys: ["/"], does: "search by name", run: () => field.current?.focus() },
  ];

  return (
    <>
      <PageHeader
        title="Runs"
        about="Sessions under one name. Those that nobody named are together by key and day."
        actions={<KeyHelp actions={actions} more={[{ keys: ["Enter"], does: "open it" }]} />}
      />
      <Recorded of={found} what="Loading the runs">
        {() =>
          known.length === 0 ? (
            <Nothing title="There is no run yet">
              <Text size="sm">
                Every session belongs to one. Give yours a name with the header X-Orsay-Run, or with run_labels of the client.
              </Text>
              <Button component={Link} to="/environments">
                Choose an environment
              </Button>
            </Nothing>
          ) : (
            <Stack>
              <Group align="flex-end">
                <SearchText label="Name" value={text} field={field} onChange={(value) => change({ text: value }, true)} />
                {marked.length > 0 ? (
                  <Button component={Link} to={compareAddress(marked)} leftSection={<GitCompare size={16} aria-hidden />}>
                    {marked.length === 1 ? "Show 1 run" : `Compare ${marked.length} runs`}
                  </Button>
                ) : (
                  <Text size="sm" c="dimmed" pb={8}>
                    Mark two or more to compare them.
                  </Text>
                )}
              </Group>
              {shown.length === 0 && <Text size="sm">No run has such a name.</Text>}
              {shown.length > 0 && <Rows runs={shown} marked={marked} mark={mark} />}
            </Stack>
          )
        }
      </Recorded>
    </>
  );
}

export function compareAddress(runs: string[]): string {
  return `/runs/compare?${new URLSearchParams(runs.map((run) => ["run", run])).toString()}`;
}

function Rows({ runs, marked, mark }: { runs: Run[]; marked: string[]; mark: (run: string) => void }) {
  return (
    <div className="scroll-x">
      <Table highlightOnHover aria-label="Runs" verticalSpacing="xs">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>
              <span className="only-read">Compare</span>
            </Table.Th>
            <Table.Th>Run</Table.Th>
            <Table.Th visibleFrom="md">Environments</Table.Th>
            <Table.Th ta="right">Episodes</Table.Th>
            <Table.Th ta="right" visibleFrom="md">
              Steps
            </Table.Th>
            <Table.Th ta="right">Mean reward</Table.Th>
            <Table.Th ta="right" visibleFrom="sm">
              Success
            </Table.Th>
            <Table.Th ta="right" visibleFrom="lg">
              Length
            </Table.Th>
            <Table.Th ta="right" visibleFrom="sm">
              Faults
            </Table.Th>
            <Table.Th visibleFrom="sm">Last</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {runs.map((run) => (
            <Table.Tr key={run.run}>
              <Table.Td>
                <Checkbox
                  checked={marked.includes(run.run)}
                  onChange={() => mark(run.run)}
                  aria-label={`Compare ${run.run}`}
                  size="xs"
                />
              </Table.Td>
              <Table.Td>
                <Anchor component={Link} to={compareAddress([run.run])} data-row={run.run} size="sm" fw={500} className="row-name">
                  {run.run}
                </Anchor>{" "}
                {!run.labelled && (
                  <Badge variant="light" color="gray" size="xs" className="mark">
                    unnamed
                  </Badge>
                )}
              </Table.Td>
              <Table.Td visibleFrom="md">
                <Text size="sm">{run.environments.join(", ")}</Text>
              </Table.Td>
              <Table.Td ta="right" className="numeric">
                {count(run.episodes)}
                {run.running > 0 && <Text size="xs" c="dimmed">{`${count(run.running)} running`}</Text>}
              </Table.Td>
              <Table.Td ta="right" className="numeric" visibleFrom="md">
                {count(run.steps)}
              </Table.Td>
              <Table.Td ta="right" className="numeric one-line">
                {withInterval(run.reward_mean, run.reward_low, run.reward_high)}
              </Table.Td>
              <Table.Td ta="right" className="numeric" visibleFrom="sm">
                {share(run.success)}
              </Table.Td>
              <Table.Td ta="right" className="numeric" visibleFrom="lg">
                {number(run.length_mean, 1)}
              </Table.Td>
              <Table.Td ta="right" className="numeric" visibleFrom="sm">
                {percent(run.fault_rate)}
              </Table.Td>
              <Table.Td visibleFrom="sm">
                <Text size="sm" component="span" style={{ whiteSpace: "nowrap" }}>
                  <When at={run.last_at} />
                </Text>
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}
