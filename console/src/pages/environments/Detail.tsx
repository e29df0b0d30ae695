// One environment: its description, its splits with their sizes, its tools with their arguments.
import { Accordion, Anchor, Button, Card, Code as Inline, Stack, Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "react-router";

import { useEnvironments } from "../../api/queries";
import type { EnvironmentEntry, Split, ToolEntry } from "../../api/types";
import { count } from "../../format";
import { describeArguments } from "../../forms/describe";
import { countTasks } from "../../ors/requests";
import { Json } from "../../shared/Code";
import { PageHeader } from "../../shared/PageHeader";
import { Nothing, Result } from "../../shared/states";
import { Load, Marks } from "./Marks";
import { playgroundPath } from "./paths";

export function Detail() {
  const { name = "" } = useParams();
  const environments = useEnvironments();
  return (
    <Result of={environments} what="Loading the environment">
      {(list) => {
        const environment = list.find((each) => each.key === name.toLowerCase() || each.name === name);
        return environment ? <One environment={environment} /> : <Missing name={name} />;
      }}
    </Result>
  );
}

function One({ environment }: { environment: EnvironmentEntry }) {
  const { name, key, description, splits, tools } = environment;
  return (
    <>
      <PageHeader
        title={name}
        about={<Load environment={environment} />}
        actions={
          <>
            <Marks environment={environment} />
            <Button component={Link} to={`/trajectories?environment=${encodeURIComponent(name)}`} variant="default">
              Trajectories
            </Button>
            <Button component={Link} to={playgroundPath(key)}>
              Play
            </Button>
          </>
        }
      />
      <Stack gap="lg">
        <Text className="as-typed">{description || "No description: the class has no docstring."}</Text>
        <Splits environment={key} splits={splits} />
        <section aria-labelledby="tools">
          <Title order={2} size="h4" id="tools" mb="xs">
            Tools
          </Title>
          {tools.length === 0 && <Text c="dimmed">None: the model answers with its last message.</Text>}
          <Accordion multiple variant="contained" defaultValue={tools.slice(0, 3).map((tool) => tool.name)} order={3}>
            {tools.map((tool) => (
              <Accordion.Item key={tool.name} value={tool.name}>
                <Accordion.Control>
                  <Inline fz="md">{tool.name}</Inline>
                </Accordion.Control>
                <Accordion.Panel>
                  <ToolDetail tool={tool} />
                </Accordion.Panel>
              </Accordion.Item>
            ))}
          </Accordion>
        </section>
      </Stack>
    </>
  );
}

function Splits({ environment, splits }: { environment: string; splits: Split[] }) {
  return (
    <section aria-labelledby="splits">
      <Title order={2} size="h4" id="splits" mb="xs">
        Splits
      </Title>
      <Card withBorder p={0} className="scroll-x">
        <Table verticalSpacing="xs" horizontalSpacing="md">
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Name</Table.Th>
              <Table.Th>Type</Table.Th>
              <Table.Th ta="right">Tasks</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {splits.map((split) => (
              <Table.Tr key={split.name}>
                <Table.Td>
                  <Anchor component={Link} to={playgroundPath(environment, { split: split.name })}>
                    {split.name}
                  </Anchor>
                </Table.Td>
                <Table.Td>{split.type}</Table.Td>
                <Table.Td ta="right" className="numeric">
                  <Size environment={environment} split={split.name} />
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Card>
    </section>
  );
}

function Size({ environment, split }: { environment: string; split: string }) {
  const size = useQuery({
    queryKey: ["num_tasks", environment, split],
    queryFn: ({ signal }) => countTasks(environment, split, signal),
    staleTime: 60_000,
  });
  if (size.isError) return <>cannot be counted</>;
  return <>{size.data === undefined ? "…" : count(size.data)}</>;
}

function ToolDetail({ tool }: { tool: ToolEntry }) {
  const given = describeArguments(tool.input_schema);
  return (
    <Stack gap="sm">
      <Text className="as-typed" size="sm">
        {tool.description || "No description."}
      </Text>
      {given.length === 0 ? (
        <Text size="sm" c="dimmed">
          No arguments.
        </Text>
      ) : (
        <div className="scroll-x" tabIndex={0} role="region" aria-label={`Arguments of ${tool.name}`}>
          <Table verticalSpacing={6} miw={480}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>Argument</Table.Th>
                <Table.Th>Type</Table.Th>
                <Table.Th>Default</Table.Th>
                <Table.Th>Description</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {given.map((each) => (
                <Table.Tr key={each.name}>
                  <Table.Td>
                    <Inline>{each.name}</Inline>
                  </Table.Td>
                  <Table.Td>{each.type}</Table.Td>
                  <Table.Td>
                    {each.required ? "required" : each.default !== null && <Inline>{each.default}</Inline>}
                  </Table.Td>
                  <Table.Td className="as-typed">{each.description}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </div>
      )}
      {tool.input_schema !== null && (
        <details>
          <summary>JSON schema</summary>
          <Json value={tool.input_schema} label={`JSON schema of ${tool.name}`} />
        </details>
      )}
    </Stack>
  );
}

function Missing({ name }: { name: string }) {
  return (
    <Nothing title={`This server hosts no environment named “${name}”`}>
      <Button component={Link} to="/environments">
        Show hosted environments
      </Button>
    </Nothing>
  );
}
