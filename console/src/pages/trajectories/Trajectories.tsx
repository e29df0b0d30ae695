// The list of what was played: search, filters, paging by time, and keys.
import { Alert, Button, Group, Menu, Stack, Text } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { ArrowUpToLine, ChevronRight, Download, GitCompare } from "lucide-react";
import { memo, useCallback, useMemo, useRef, useState } from "react";
import { Link, useLocation, useNavigate } from "react-router";

import { download } from "../../api/request";
import type { Page, Summary } from "../../api/types";
import { count } from "../../format";
import { PageHeader } from "../../shared/PageHeader";
import { Nothing } from "../../shared/states";
import { Recorded } from "./Recorded";
import { FilterBar } from "./FilterBar";
import { FILTERS, toParameters, toSearch, useFilters, type Filters, type FilterState } from "./filters";
import { KeyHelp, moveFocus, type KeyAction } from "./keys";
import { useTrajectories } from "./queries";
import { Rows } from "./Rows";
import "./trajectories.css";

export function Trajectories() {
  const [state, before] = useFilters();
  const found = useTrajectories(state.filters, before);
  const searchField = useRef<HTMLInputElement>(null);
  const navigate = useNavigate();
  const [marked, setMarked] = useState<Summary[]>([]);
  const items = found.data?.items;
  const older = found.data?.next ?? null;

  const mark = useCallback(
    (id: string) => {
      const item = items?.find((candidate) => candidate.id === id);
      if (!item) return;
      setMarked((those) =>
        those.some((other) => other.id === id) ? those.filter((other) => other.id !== id) : [...those, item].slice(-2),
      );
    },
    [items],
  );
  const actions: KeyAction[] = [
    { keys: ["j", "ArrowDown"], does: "next trajectory", run: () => moveFocus("[data-row]", 1) },
    { keys: ["k", "ArrowUp"], does: "previous trajectory", run: () => moveFocus("[data-row]", -1) },
    { keys: ["x"], does: "select for comparison", run: () => mark(focusedRow()) },
    { keys: ["o"], does: "older ones", run: () => older && void navigate(olderAddress(state.filters, older)) },
    { keys: ["/"], does: "search for text", run: () => searchField.current?.focus() },
  ];

  return (
    <>
      <PageHeader
        title="Trajectories"
        about="Recorded sessions, newest first."
        actions={
          <>
            <KeyHelp actions={actions} more={[{ keys: ["Enter"], does: "open it" }]} />
            <ExportButton filters={state.filters} />
          </>
        }
      />
      <Stack>
        <FilterBar state={state} searchField={searchField} settled={!found.isPending} />
        <Comparison marked={marked} clear={() => setMarked([])} />
        <Recorded of={found} what="Loading trajectories">
          {(page) => (
            <List
              page={page}
              state={state}
              before={before}
              marked={marked}
              onMark={mark}
              outdated={found.isPlaceholderData}
            />
          )}
        </Recorded>
      </Stack>
    </>
  );
}

function focusedRow(): string {
  return (document.activeElement as HTMLElement | null)?.dataset.row ?? "";
}

function olderAddress(filters: Filters, before: string): string {
  const search = new URLSearchParams(filters as Record<string, string>);
  search.set("before", before);
  return `/trajectories?${search.toString()}`;
}

function List({
  page,
  state: { filters, clear },
  before,
  marked,
  onMark,
  outdated,
}: {
  page: Page;
  state: FilterState;
  before: string | null;
  marked: Summary[];
  onMark: (id: string) => void;
  outdated: boolean;
}) {
  const { search } = useLocation();
  const context = useMemo(() => ({ list: `/trajectories${search}`, ids: page.items.map(({ id }) => id) }), [search, page]);
  return (
    <Stack gap="sm" aria-busy={outdated} style={{ opacity: outdated ? 0.6 : 1 }}>
      {filters.text !== undefined && page.unindexed > 0 && (
        <Alert variant="outline" color="yellow" className="notice" role="status">
          {`Still searching: ${count(page.unindexed)} ${page.unindexed === 1 ? "session is" : "sessions are"} left.`}
        </Alert>
      )}
      {page.items.length ? (
        <Rows items={page.items} context={context} marked={marked} onMark={onMark} />
      ) : (
        <Empty filtered={FILTERS.some((name) => filters[name] !== undefined) || before !== null} clear={clear} />
      )}
      <Group justify="space-between">
        {before === null ? (
          <span />
        ) : (
          <Button
            component={Link}
            to={`/trajectories${toSearch(filters)}`}
            variant="default"
            leftSection={<ArrowUpToLine size={16} aria-hidden />}
          >
            Newest
          </Button>
        )}
        {page.next !== null && (
          <Button
            component={Link}
            to={olderAddress(filters, page.next)}
            variant="default"
            rightSection={<ChevronRight size={16} aria-hidden />}
          >
            Older
          </Button>
        )}
      </Group>
    </Stack>
  );
}

function Empty({ filtered, clear }: { filtered: boolean; clear: () => void }) {
  if (filtered) {
    return (
      <Nothing title="No matching trajectories">
        <Text size="sm">No recorded session matches all of these filters.</Text>
        <Button variant="default" onClick={clear}>
          Clear all filters
        </Button>
      </Nothing>
    );
  }
  return (
    <Nothing title="No trajectories yet">
      <Text size="sm">Sessions appear here as soon as they start. Play one yourself, or let a model play.</Text>
      <Button component={Link} to="/environments">
        Choose an environment
      </Button>
    </Nothing>
  );
}

function Comparison({ marked, clear }: { marked: Summary[]; clear: () => void }) {
  if (marked.length === 0) return null;
  const [one, other] = marked;
  const ready = one !== undefined && other !== undefined;
  return (
    <Group role="status" gap="sm">
      <Text size="sm">
        {!ready
          ? "One trajectory is selected. Select another one to compare."
          : one.environment === other.environment && one.task === other.task
            ? "Two rollouts of one task are selected."
            : "Two trajectories of different tasks are selected."}
      </Text>
      {ready && (
        <Button
          component={Link}
          to={`/trajectories/diff?a=${one.id}&b=${other.id}`}
          size="xs"
          leftSection={<GitCompare size={14} aria-hidden />}
        >
          Compare
        </Button>
      )}
      <Button variant="default" size="xs" onClick={clear}>
        Unmark
      </Button>
    </Group>
  );
}

const FORMS = [
  { name: "Everything recorded", file: "trajectories.jsonl", options: { full: true, faults: true, living: true } },
  { name: "Conversations for training", file: "conversations.jsonl", options: {} },
];

const ExportButton = memo(function ExportButton({ filters }: { filters: Filters }) {
  const [busy, setBusy] = useState(false);
  const save = async ({ file, options }: (typeof FORMS)[number]) => {
    setBusy(true);
    try {
      await download("export", { ...toParameters(filters), ...options, format: "jsonl" }, file);
    } catch (problem) {
      notifications.show({ color: "red", title: "The download failed", message: (problem as Error).message });
    } finally {
      setBusy(false);
    }
  };
  return (
    <Menu position="bottom-end">
      <Menu.Target>
        <Button variant="default" loading={busy} leftSection={<Download size={16} aria-hidden />}>
          Save
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>Matching trajectories as JSONL</Menu.Label>
        {FORMS.map((form) => (
          <Menu.Item key={form.name} onClick={() => void save(form)}>
            {form.name}
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  );
});
