// One run or several: how reward, success, length and faults went on, how rewards are spread, and what the difference is.
import { Alert, Anchor, Button, MultiSelect, Stack, Text } from "@mantine/core";
import { ChevronDown, FileSpreadsheet } from "lucide-react";
import { memo, useMemo, useRef, useState } from "react";
import { Link } from "react-router";

import type { RunSummary, Series } from "../../api/types";
import { Chart } from "../../charts/Chart";
import "../../charts/charts.css";
import { saveCsv } from "../../charts/csv";
import { Legend } from "../../charts/Legend";
import { curvesOption, spreadOption } from "../../charts/options";
import { useEnvironments } from "../../api/queries";
import { Field, SelectField, TextField, type Option } from "../../shared/Fields";
import { PageHeader } from "../../shared/PageHeader";
import { Failure, Nothing, Waiting } from "../../shared/states";
import { useAddress, useAhead, type Change } from "../trajectories/address";
import { METRICS, curveOf, metricTable, pointsTable, smoothed, spreadTable, type Metric } from "./metrics";
import { MOST_COMPARED, readChoice, SMOOTH, useRuns, useSeries, type Choice } from "./queries";
import { Totals } from "./Totals";

const NO_RUNS: RunSummary[] = [];

export function Compare() {
  const [search, set] = useAddress();
  const text = search.toString();
  const { names, choice } = useMemo(() => readChoice(new URLSearchParams(text)), [text]);
  const found = useSeries(names, choice);
  const failed = found.find(({ isError, data }) => isError && data === undefined);
  const runs = useRuns(choice.success, found.every(({ isPending }) => !isPending)).data ?? NO_RUNS;
  const loaded = useSame(found.flatMap(({ data }) => (data ? [data] : [])));

  const title = names.length === 1 ? `Run ${names[0]}` : names.length ? `Compare ${names.length} runs` : "Compare runs";
  return (
    <>
      <PageHeader
        title={title}
        about={
          <Anchor component={Link} to="/runs" size="sm">
            All runs
          </Anchor>
        }
        actions={
          loaded.length > 0 && (
            <Button
              variant="default"
              leftSection={<FileSpreadsheet size={16} aria-hidden />}
              onClick={() => saveCsv(pointsTable(loaded), "runs")}
            >
              All as CSV
            </Button>
          )
        }
      />
      <Stack>
        <Fields names={names} runs={runs} choice={choice} set={set} />
        {names.length === 0 ? (
          <Nothing title="No run selected">
            <Text size="sm">Select one or more above.</Text>
          </Nothing>
        ) : failed ? (
          <Failure error={failed.error} retry={() => void failed.refetch()} />
        ) : loaded.length < names.length ? (
          <Waiting what="Loading runs" />
        ) : (
          <>
            <Plots series={loaded} smooth={choice.smooth} success={choice.success} />
            <Totals series={loaded} runs={runs} success={choice.success} />
          </>
        )}
      </Stack>
    </>
  );
}

/** The list of before as long as it holds the same. */
function useSame<T>(list: T[]): T[] {
  const kept = useRef(list);
  const before = kept.current;
  if (list.length !== before.length || list.some((each, index) => each !== before[index])) kept.current = list;
  return kept.current;
}

function Fields({
  names,
  runs,
  choice,
  set,
}: {
  names: string[];
  runs: RunSummary[];
  choice: Choice;
  set: Change;
}) {
  const chosen = runs.filter(({ run }) => names.includes(run));
  const played = [...new Set(chosen.flatMap(({ environments }) => environments))].sort();
  const environments = useEnvironments().data ?? [];
  const splits = [
    ...new Set(
      environments
        .filter(({ name }) => (choice.environment ? name === choice.environment : played.includes(name)))
        .flatMap((environment) => environment.splits.map(({ name }) => name)),
    ),
  ];
  const keep = (known: string[], value: string) => (value && !known.includes(value) ? [...known, value] : known);
  return (
    <div className="fields fields-5">
      <RunsField names={names} runs={runs} onChange={(run) => set({ run })} />
      <SelectField
        label="Environment"
        value={choice.environment}
        onChange={(environment) => set({ environment, split: "" })}
        options={named(keep(played, choice.environment))}
      />
      <SelectField
        label="Split"
        value={choice.split}
        onChange={(split) => set({ split })}
        options={named(keep(splits, choice.split))}
      />
      <SuccessField success={choice.success} onChange={(success) => set({ success: success === 1 ? "" : String(success) })} />
      <SelectField
        label="Curves are"
        value={String(choice.smooth)}
        onChange={(smooth) => set({ smooth: smooth === "1" ? "" : smooth })}
        options={SMOOTH.map((width) => ({
          value: String(width),
          label: width === 1 ? "as measured" : `means over ${width} points`,
        }))}
      />
    </div>
  );
}

function SuccessField({ success, onChange }: { success: number; onChange: (success: number) => void }) {
  const { shown, show, sent } = useAhead(String(success));
  return (
    <TextField
      label="Success threshold"
      type="number"
      step={0.1}
      value={shown}
      onChange={({ currentTarget: { value, validity } }) => {
        show(value);
        if (validity.badInput) return; // "0." on the way to "0.5"
        const wanted = value === "" ? 1 : Number(value);
        sent(String(wanted));
        onChange(wanted);
      }}
    />
  );
}

/** The names of those chosen; what chooses others is made when it is first asked for. */
function RunsField({ names, runs, onChange }: { names: string[]; runs: RunSummary[]; onChange: (names: string[]) => void }) {
  const [asked, setAsked] = useState(false);
  if (!asked) {
    return (
      <Field label="Runs">
        {(id) => (
          <>
            <button
              id={id}
              type="button"
              role="combobox"
              aria-expanded={false}
              aria-haspopup="listbox"
              className="field-input field-button"
              onClick={() => setAsked(true)}
              onKeyDown={({ key }) => key === "ArrowDown" && setAsked(true)}
            >
              {names.join(", ") || "None"}
            </button>
            <ChevronDown size={16} aria-hidden className="field-icon field-icon-right" />
          </>
        )}
      </Field>
    );
  }
  return (
    <MultiSelect
      label="Runs"
      data={[...new Set([...names, ...runs.map(({ run }) => run)])]}
      value={names}
      onChange={onChange}
      maxValues={MOST_COMPARED}
      searchable
      limit={50}
      autoFocus
      defaultDropdownOpened
      clearButtonProps={{ "aria-label": "No runs" }}
    />
  );
}

function named(values: string[]): Option[] {
  return [{ value: "", label: "All" }, ...values.map((value) => ({ value, label: value }))];
}

/** Drawn again only when something in them changed. */
const Plots = memo(function Plots({ series, smooth, success }: { series: Series[]; smooth: number; success: number }) {
  const stepped = series.filter(({ points }) => points.some(({ step }) => step !== null));
  const timed = series.filter(({ points }) => points.length > 0 && points.every(({ step }) => step === null));
  const empty = series.filter(({ points }) => points.length === 0);
  return (
    <>
      <Legend
        names={series.map(({ run }) => (
          <Anchor component={Link} to={`/trajectories?${new URLSearchParams({ run }).toString()}`} size="sm" key={run}>
            {run}
          </Anchor>
        ))}
      />
      {empty.length > 0 && (
        <Alert variant="outline" color="yellow" className="notice" role="status">
          {`No completed episode matches: ${empty.map(({ run }) => run).join(", ")}.`}
        </Alert>
      )}
      {stepped.length > 0 && (
        <section aria-label="Over steps">
          <Curves series={series} shown={stepped} axis="step" smooth={smooth} success={success} />
        </section>
      )}
      {timed.length > 0 && (
        <section aria-label="Over time">
          {stepped.length > 0 && (
            <Text size="sm" c="dimmed" mb="xs">
              These runs have no steps; they are shown over time.
            </Text>
          )}
          <Curves series={series} shown={timed} axis="time" smooth={smooth} success={success} />
        </section>
      )}
      <Distribution series={series} />
    </>
  );
});

interface CurvesProps {
  series: Series[];
  shown: Series[];
  axis: "step" | "time";
  smooth: number;
  success: number;
}

function Curves(props: CurvesProps) {
  return (
    <div className="plots">
      {METRICS.map((metric) => (
        <OneMetric key={metric.name} metric={metric} {...props} />
      ))}
    </div>
  );
}

function OneMetric({ metric, series, shown, axis, smooth, success }: CurvesProps & { metric: Metric }) {
  // a run keeps its colour in every plot, so those that are not shown here are curves without points
  const option = useMemo(
    () => (scheme: "light" | "dark") =>
      curvesOption(
        series.map((one) => (shown.includes(one) ? smoothed(curveOf(one, metric), smooth) : { name: one.run, points: [] })),
        { kind: axis, format: metric.format, bounds: metric.bounds },
        scheme,
      ),
    [metric, series, shown, axis, smooth],
  );
  return (
    <Chart
      title={axis === "step" ? metric.name : `${metric.name} over time`}
      summary={`${metric.about(success)}${smooth > 1 ? ` Running means over ${smooth} points, without intervals.` : ""} Over ${axis === "step" ? "steps" : "time"}, for ${shown.map(({ run }) => run).join(", ")}.`}
      option={option}
      table={() => metricTable(shown, metric)}
      file={`runs-${metric.name}`}
    />
  );
}

function Distribution({ series }: { series: Series[] }) {
  const option = useMemo(
    () => (scheme: "light" | "dark") => spreadOption(series.map(({ run, histogram }) => ({ name: run, ...histogram })), scheme),
    [series],
  );
  return (
    <Chart
      title="Distribution of rewards"
      summary="The share of episodes with a reward in each range."
      option={option}
      table={() => spreadTable(series)}
      file="runs-rewards"
    />
  );
}
