// One run or several: how reward, success, length and faults went on, how rewards are spread, and what the difference is.
import { Alert, Anchor, Button, MultiSelect, NativeSelect, NumberInput, SimpleGrid, Stack, Text } from "@mantine/core";
import { FileSpreadsheet } from "lucide-react";
import { useMemo } from "react";
import { Link } from "react-router";

import type { Run, Series } from "../../api/types";
import { Chart } from "../../charts/Chart";
import "../../charts/charts.css";
import { saveCsv } from "../../charts/csv";
import { Legend } from "../../charts/Legend";
import { curvesOption, spreadOption } from "../../charts/options";
import { useEnvironments } from "../../api/queries";
import { PageHeader } from "../../shared/PageHeader";
import { Failure, Nothing, Waiting } from "../../shared/states";
import { useAddress, type Change } from "../trajectories/address";
import { FIGURES, curveOf, figureTable, pointsTable, smoothed, spreadTable, type Figure } from "./figures";
import { useRuns, useSeries, type Choice } from "./queries";
import { Totals } from "./Totals";

export const MOST_COMPARED = 8;
const SMOOTH = [1, 3, 10, 30];

export function Compare() {
  const [search, set] = useAddress();
  const names = useMemo(() => [...new Set(search.getAll("run"))].slice(0, MOST_COMPARED), [search]);
  const choice: Choice = {
    environment: search.get("environment") ?? "",
    split: search.get("split") ?? "",
    success: Number(search.get("success") ?? 1) || 0,
    smooth: SMOOTH.find((width) => String(width) === search.get("smooth")) ?? 1,
  };
  const runs = useRuns(choice.success).data ?? [];
  const found = useSeries(names, choice);
  const failed = found.find(({ isError, data }) => isError && data === undefined);
  const loaded = found.flatMap(({ data }) => (data ? [data] : []));

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
          <Nothing title="No run is chosen">
            <Text size="sm">Choose one or several above.</Text>
          </Nothing>
        ) : failed ? (
          <Failure error={failed.error} retry={() => void failed.refetch()} />
        ) : loaded.length < names.length ? (
          <Waiting what="Adding up the runs" />
        ) : (
          <Plots series={loaded} choice={choice} runs={runs} />
        )}
      </Stack>
    </>
  );
}

function Fields({
  names,
  runs,
  choice,
  set,
}: {
  names: string[];
  runs: Run[];
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
    <SimpleGrid cols={{ base: 2, md: 5 }} spacing="sm">
      <MultiSelect
        label="Runs"
        data={[...new Set([...names, ...runs.map(({ run }) => run)])]}
        value={names}
        onChange={(run) => set({ run })}
        maxValues={MOST_COMPARED}
        searchable
        limit={50}
        clearButtonProps={{ "aria-label": "No runs" }}
      />
      <NativeSelect
        label="Environment"
        value={choice.environment}
        onChange={(event) => set({ environment: event.currentTarget.value, split: "" })}
        data={[{ value: "", label: "All" }, ...keep(played, choice.environment)]}
      />
      <NativeSelect
        label="Split"
        value={choice.split}
        onChange={(event) => set({ split: event.currentTarget.value })}
        data={[{ value: "", label: "All" }, ...keep(splits, choice.split)]}
      />
      <NumberInput
        label="A success has a reward of"
        value={choice.success}
        step={0.1}
        onChange={(value) => set({ success: value === "" || value === 1 ? "" : String(value) })}
        suffix=" or more"
        hideControls
      />
      <NativeSelect
        label="Curves are"
        value={String(choice.smooth)}
        onChange={(event) => set({ smooth: event.currentTarget.value === "1" ? "" : event.currentTarget.value })}
        data={SMOOTH.map((width) => ({
          value: String(width),
          label: width === 1 ? "as measured" : `means over ${width} points`,
        }))}
      />
    </SimpleGrid>
  );
}

function Plots({ series, choice, runs }: { series: Series[]; choice: Choice; runs: Run[] }) {
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
          {`No episode that ended fits: ${empty.map(({ run }) => run).join(", ")}.`}
        </Alert>
      )}
      {stepped.length > 0 && (
        <section aria-label="Over steps">
          <Curves series={series} shown={stepped} axis="step" choice={choice} />
        </section>
      )}
      {timed.length > 0 && (
        <section aria-label="Over time">
          {stepped.length > 0 && (
            <Text size="sm" c="dimmed" mb="xs">
              These runs have no steps; they are shown over time.
            </Text>
          )}
          <Curves series={series} shown={timed} axis="time" choice={choice} />
        </section>
      )}
      <Distribution series={series} />
      <Totals series={series} runs={runs} success={choice.success} />
    </>
  );
}

function Curves({ series, shown, axis, choice }: { series: Series[]; shown: Series[]; axis: "step" | "time"; choice: Choice }) {
  return (
    <SimpleGrid cols={{ base: 1, lg: 2 }} spacing="md" w="100%">
      {FIGURES.map((figure) => (
        <OneFigure key={figure.name} figure={figure} series={series} shown={shown} axis={axis} choice={choice} />
      ))}
    </SimpleGrid>
  );
}

function OneFigure({
  figure,
  series,
  shown,
  axis,
  choice: { success, smooth },
}: {
  figure: Figure;
  series: Series[];
  shown: Series[];
  axis: "step" | "time";
  choice: Choice;
}) {
  // a run keeps its colour in every plot, so those that are not shown here are curves without points
  const option = useMemo(
    () => (scheme: "light" | "dark") =>
      curvesOption(
        series.map((one) => (shown.includes(one) ? smoothed(curveOf(one, figure), smooth) : { name: one.run, points: [] })),
        { kind: axis, format: figure.format, bounds: figure.bounds },
        scheme,
      ),
    [figure, series, shown, axis, smooth],
  );
  return (
    <Chart
      title={axis === "step" ? figure.name : `${figure.name} over time`}
      summary={`${figure.about(success)}${smooth > 1 ? ` Running means over ${smooth} points, without intervals.` : ""} Over ${axis === "step" ? "steps" : "time"}, for ${shown.map(({ run }) => run).join(", ")}.`}
      option={option}
      table={figureTable(shown, figure)}
      file={`runs-${figure.name}`}
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
      table={spreadTable(series)}
      file="runs-rewards"
    />
  );
}
