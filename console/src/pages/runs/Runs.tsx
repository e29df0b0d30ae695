// All runs: what clients named so, and by day what they did not name.
import { Button, Group, Stack, Text } from "@mantine/core";
import { GitCompare } from "lucide-react";
import { memo, useCallback, useMemo, useRef } from "react";
import { Link, useHref, useNavigate } from "react-router";

import type { RunSummary } from "../../api/types";
import { count, number, percent } from "../../format";
import { linkOf } from "../../shared/links";
import { PageHeader } from "../../shared/PageHeader";
import { Nothing } from "../../shared/states";
import { Tag } from "../../shared/Tag";
import { Tick } from "../../shared/Tick";
import { When } from "../../shared/When";
import { Recorded } from "../trajectories/Recorded";
import { useAddress } from "../trajectories/address";
import { KeyHelp, moveFocus, type KeyAction } from "../trajectories/keys";
import { useMarks } from "../trajectories/marks";
import { SearchText } from "../trajectories/SearchText";
import "../trajectories/trajectories.css";
import { MOST_COMPARED, useRuns } from "./queries";
import { share, withInterval } from "./words";

const NO_RUNS: RunSummary[] = [];

export function Runs() {
  const [search, change] = useAddress();
  const navigate = useNavigate();
  const found = useRuns();
  const field = useRef<HTMLInputElement>(null);
  const text = search.get("text") ?? "";
  const [marked, mark] = useMarks("run", MOST_COMPARED);
  const known = found.data ?? NO_RUNS;
  const shown = useMemo(() => known.filter(({ run }) => run.toLowerCase().includes(text.toLowerCase())), [known, text]);

  const focused = () => (document.activeElement as HTMLElement | null)?.dataset.row;
  const actions: KeyAction[] = [
    { keys: ["j", "ArrowDown"], does: "next run", run: () => moveFocus("[data-row]", 1) },
    { keys: ["k", "ArrowUp"], does: "previous run", run: () => moveFocus("[data-row]", -1) },
    { keys: ["x"], does: "select for comparison", run: () => focused() !== undefined && mark(focused() ?? "") },
    { keys: ["c"], does: "compare those that are marked", run: () => marked.length > 0 && void navigate(compareAddress(marked)) },
    { keys: ["/"], does: "search by name", run: () => field.current?.focus() },
  ];

  return (
    <>
      <PageHeader
        title="Runs"
        about="Sessions grouped by run name. Unnamed sessions are grouped by API key and day."
        actions={<KeyHelp actions={actions} more={[{ keys: ["Enter"], does: "open it" }]} />}
      />
      <Recorded of={found} what="Loading the runs">
        {() =>
          known.length === 0 ? (
            <Nothing title="No runs yet">
              <Text size="sm">
                Every session belongs to a run. Name it with the header X-Orsay-Run, or with run_labels in the client.
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
                    Select two or more to compare.
                  </Text>
                )}
              </Group>
              {shown.length === 0 && <Text size="sm">No matching runs.</Text>}
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

function Rows({ runs, marked, mark }: { runs: RunSummary[]; marked: string[]; mark: (run: string) => void }) {
  const navigate = useNavigate();
  const address = useHref("/runs/compare");
  const latest = useRef(mark);
  latest.current = mark;
  const onMark = useCallback((run: string) => latest.current(run), []);
  const now = useMemo(() => Date.now(), [runs]);
  return (
    <div
      className="scroll-x"
      onClick={(event) => {
        const run = linkOf(event, "a[data-row]")?.dataset.row;
        if (run !== undefined) void navigate(compareAddress([run]));
      }}
    >
      <table className="list" aria-label="Runs">
        <thead>
          <tr>
            <th>
              <span className="only-read">Compare</span>
            </th>
            <th>Run</th>
            <th className="from-md">Environments</th>
            <th className="right">Episodes</th>
            <th className="right from-md">Steps</th>
            <th className="right">Mean reward</th>
            <th className="right from-sm">Success</th>
            <th className="right from-lg">Length</th>
            <th className="right from-sm">Faults</th>
            <th className="from-sm">Last</th>
          </tr>
        </thead>
        <tbody>
          {runs.map((run) => (
            <Row key={run.run} run={run} address={address} now={now} marked={marked.includes(run.run)} onMark={onMark} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

const Row = memo(function Row({
  run,
  address,
  now,
  marked,
  onMark,
}: {
  run: RunSummary;
  address: string;
  now: number;
  marked: boolean;
  onMark: (run: string) => void;
}) {
  return (
    <tr>
      <td>
        <Tick checked={marked} onChange={() => onMark(run.run)} label={`Compare ${run.run}`} />
      </td>
      <td>
        <a href={`${address}?${new URLSearchParams({ run: run.run }).toString()}`} data-row={run.run} className="link link-strong row-name">
          {run.run}
        </a>{" "}
        {!run.labelled && (
          <Tag colour="gray" small>
            unnamed
          </Tag>
        )}
      </td>
      <td className="small from-md">{run.environments.join(", ")}</td>
      <td className="numeric right">
        {count(run.episodes)}
        {run.running > 0 && <p className="plain smaller dimmed">{`${count(run.running)} running`}</p>}
      </td>
      <td className="numeric right from-md">{count(run.steps)}</td>
      <td className="numeric right one-line">{withInterval(run.reward_mean, run.reward_low, run.reward_high)}</td>
      <td className="numeric right from-sm">{share(run.success)}</td>
      <td className="numeric right from-lg">{number(run.length_mean, 1)}</td>
      <td className="numeric right from-sm">{percent(run.fault_rate)}</td>
      <td className="from-sm one-line">
        <When at={run.last_at} now={now} />
      </td>
    </tr>
  );
});
