// All evaluations, newest first; two of them can be compared.
import { Anchor, Badge, Button, Checkbox, Code, Group, Stack, Table, Text } from "@mantine/core";
import { GitCompare } from "lucide-react";
import { Link, useNavigate } from "react-router";

import type { EvaluationItem } from "../../api/types";
import { count, percent } from "../../format";
import { PageHeader } from "../../shared/PageHeader";
import { Nothing } from "../../shared/states";
import { When } from "../../shared/When";
import { withInterval } from "../runs/words";
import { Recorded } from "../trajectories/Recorded";
import { KeyHelp, moveFocus, type KeyAction } from "../trajectories/keys";
import { useMarks } from "../trajectories/marks";
import "../trajectories/trajectories.css";
import { total, useEvaluations } from "./report";

export function Evaluations() {
  const found = useEvaluations();
  const navigate = useNavigate();
  const [marked, mark] = useMarks("mark", 2);
  const focused = () => (document.activeElement as HTMLElement | null)?.dataset.row ?? "";
  // the older one is A: the comparison tells what became of it
  const [one, other] = [...marked].sort((a, b) => a.length - b.length || (a < b ? -1 : 1));
  const address = one !== undefined && other !== undefined ? `/evaluations/compare?a=${one}&b=${other}` : null;
  const actions: KeyAction[] = [
    { keys: ["j", "ArrowDown"], does: "next evaluation", run: () => moveFocus("[data-row]", 1) },
    { keys: ["k", "ArrowUp"], does: "previous evaluation", run: () => moveFocus("[data-row]", -1) },
    { keys: ["x"], does: "select for comparison", run: () => focused() && mark(focused()) },
    { keys: ["c"], does: "compare the selected two", run: () => address && void navigate(address) },
  ];
  return (
    <>
      <PageHeader
        title="Evaluations"
        about="What orsay eval measured: mean reward and pass@k, with faults apart."
        actions={<KeyHelp actions={actions} more={[{ keys: ["Enter"], does: "open it" }]} />}
      />
      <Recorded of={found} what="Loading the evaluations">
        {(all) =>
          all.length === 0 ? (
            <Nothing title="No evaluations yet">
              <Text size="sm">Evaluate a model, or a random policy, on tasks of this server:</Text>
              <Code block ta="left" className="as-typed">
                {`orsay eval ${window.location.origin} --env NAME --split test -n 20 --policy random`}
              </Code>
            </Nothing>
          ) : (
            <Stack>
              <Group>
                {address !== null ? (
                  <Button component={Link} to={address} leftSection={<GitCompare size={16} aria-hidden />}>
                    Compare 2 evaluations
                  </Button>
                ) : (
                  <Text size="sm" c="dimmed">
                    Select two to compare.
                  </Text>
                )}
              </Group>
              <Rows items={all} marked={marked} mark={mark} />
            </Stack>
          )
        }
      </Recorded>
    </>
  );
}

export function State({ of }: { of: EvaluationItem }) {
  const { episodes, planned } = of.summary;
  if (episodes >= planned) return null;
  return (
    <Badge variant="light" color="yellow" className="mark" size="sm">
      {`${count(episodes)} of ${count(planned)} episodes`}
    </Badge>
  );
}

function Rows({ items, marked, mark }: { items: EvaluationItem[]; marked: string[]; mark: (id: string) => void }) {
  return (
    <div className="scroll-x">
      <Table highlightOnHover aria-label="Evaluations" verticalSpacing="xs">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>
              <span className="only-read">Compare</span>
            </Table.Th>
            <Table.Th>Name</Table.Th>
            <Table.Th visibleFrom="sm">Model</Table.Th>
            <Table.Th visibleFrom="md">Tasks</Table.Th>
            <Table.Th ta="right">Mean reward</Table.Th>
            <Table.Th ta="right" visibleFrom="sm">
              pass@k
            </Table.Th>
            <Table.Th ta="right" visibleFrom="md">
              Faults
            </Table.Th>
            <Table.Th visibleFrom="sm">Started</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {items.map((item) => {
            const best = item.summary.pass_at_k.at(-1);
            const reward = item.summary.mean_reward;
            return (
              <Table.Tr key={item.id}>
                <Table.Td>
                  <Checkbox
                    size="xs"
                    checked={marked.includes(item.id)}
                    onChange={() => mark(item.id)}
                    aria-label={`Compare ${item.name}`}
                  />
                </Table.Td>
                <Table.Td>
                  <Anchor component={Link} to={`/evaluations/${item.id}`} data-row={item.id} size="sm" fw={500} className="row-name">
                    {item.name}
                  </Anchor>{" "}
                  <State of={item} />
                </Table.Td>
                <Table.Td visibleFrom="sm" className="wrap-anywhere">
                  {item.model}
                </Table.Td>
                <Table.Td visibleFrom="md">
                  {`${count(item.summary.n_tasks)} of ${item.environment}${item.split ? ` ${item.split}` : ""}`}
                </Table.Td>
                <Table.Td ta="right" className="numeric one-line">
                  {withInterval(reward?.mean, reward?.low, reward?.high)}
                </Table.Td>
                <Table.Td ta="right" className="numeric" visibleFrom="sm">
                  {best && `${percent(best.mean)} at ${best.k}`}
                </Table.Td>
                <Table.Td ta="right" className="numeric" visibleFrom="md">
                  {count(total(item.summary.faults))}
                </Table.Td>
                <Table.Td visibleFrom="sm">
                  <When at={item.started_at} />
                </Table.Td>
              </Table.Tr>
            );
          })}
        </Table.Tbody>
      </Table>
    </div>
  );
}
