// The tools of the session: one is chosen, its form filled in, and it is called.
import { Button, Group, Select, Stack, Tabs, Text } from "@mantine/core";
import { useMemo, useState } from "react";

import type { JsonObject } from "../../api/json";
import type { ListToolsOutput } from "../../api/types";
import { submitByKeys, ToolForm } from "../../forms/ToolForm";

interface Callable {
  name: string;
  label: string;
  description: string;
  schema: JsonObject | null;
}

/** More tools than this are a list to choose from, not tabs. */
const TABS = 5;

export function Tools({
  listing,
  disabled,
  running,
  onCall,
}: {
  listing: ListToolsOutput;
  disabled: boolean;
  running: boolean;
  onCall: (tool: string, input: Record<string, unknown>) => void;
}) {
  const tools = useMemo(() => callables(listing), [listing]);
  const [name, setName] = useState(tools[0]?.name ?? null);
  if (tools.length === 0) return <Text c="dimmed">This task has no tools.</Text>;
  if (tools.length > TABS) {
    return (
      <Stack>
        <Select
          label="Tool"
          data={tools.map((tool) => ({ value: tool.name, label: tool.label }))}
          value={name}
          onChange={setName}
          allowDeselect={false}
          searchable
        />
        {tools.map((tool) => (
          <div key={tool.name} hidden={tool.name !== name}>
            <One tool={tool} disabled={disabled} running={running} onCall={onCall} />
          </div>
        ))}
      </Stack>
    );
  }
  return (
    <Tabs value={name} onChange={setName} variant="outline" keepMounted>
      <Tabs.List aria-label="Tools">
        {tools.map((tool) => (
          <Tabs.Tab key={tool.name} value={tool.name}>
            {tool.label}
          </Tabs.Tab>
        ))}
      </Tabs.List>
      {tools.map((tool) => (
        <Tabs.Panel key={tool.name} value={tool.name} pt="sm">
          <One tool={tool} disabled={disabled} running={running} onCall={onCall} />
        </Tabs.Panel>
      ))}
    </Tabs>
  );
}

function callables(listing: ListToolsOutput): Callable[] {
  const tools = listing.tools.map((tool) => ({
    name: tool.name,
    label: tool.name,
    description: tool.description,
    schema: tool.input_schema,
  }));
  const last = listing.terminal_tool;
  if (!last) return tools;
  const { arg = null, description = "" } = last;
  const schema: JsonObject | null =
    arg === null
      ? null
      : { type: "object", properties: { [arg]: { type: "string", title: "Message" } }, required: [arg] };
  return [...tools, { name: last.name, label: "Last message", description, schema }];
}

function One({
  tool,
  disabled,
  running,
  onCall,
}: {
  tool: Callable;
  disabled: boolean;
  running: boolean;
  onCall: (tool: string, input: Record<string, unknown>) => void;
}) {
  const buttons = (broken: boolean) => (
    <Group gap="sm" mt="xs">
      <Button type="submit" disabled={disabled || broken} loading={running}>
        Call {tool.name}
      </Button>
      <Text size="xs" c="dimmed" visibleFrom="sm">
        or Ctrl+Enter
      </Text>
    </Group>
  );
  return (
    <Stack gap="sm">
      <Text size="sm" className="as-typed">
        {tool.description || "No description."}
      </Text>
      {tool.schema === null ? (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            onCall(tool.name, {});
          }}
          onKeyDown={submitByKeys}
        >
          {buttons(false)}
        </form>
      ) : (
        <ToolForm schema={tool.schema} onSubmit={(input) => !disabled && !running && onCall(tool.name, input)}>
          {(_, broken) => buttons(broken)}
        </ToolForm>
      )}
    </Stack>
  );
}
