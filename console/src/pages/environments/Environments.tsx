// Environments of this server, with their load.
import { Anchor, Button, Card, Code, Group, SimpleGrid, Stack, Text, TextInput, Title } from "@mantine/core";
import { Search } from "lucide-react";
import { useState } from "react";
import { Link } from "react-router";

import { useEnvironments } from "../../api/queries";
import type { EnvironmentEntry } from "../../api/types";
import { PageHeader } from "../../shared/PageHeader";
import { Nothing, Result } from "../../shared/states";
import { environmentPath, playgroundPath } from "./paths";
import { Load, Marks } from "./Marks";

/** With more environments than this, a field to search them. */
const FEW = 6;

export function Environments() {
  const environments = useEnvironments();
  return (
    <>
      <PageHeader title="Environments" about="Environments hosted by this server." />
      <Result of={environments} what="Loading environments">
        {(list) => (list.length === 0 ? <None /> : <List environments={list} />)}
      </Result>
    </>
  );
}

function List({ environments }: { environments: EnvironmentEntry[] }) {
  const [text, setText] = useState("");
  const wanted = text.trim().toLowerCase();
  const shown = environments.filter((each) => `${each.name}\n${each.description ?? ""}`.toLowerCase().includes(wanted));
  return (
    <Stack>
      {environments.length > FEW && (
        <TextInput
          label="Search"
          type="search"
          value={text}
          onChange={(event) => setText(event.currentTarget.value)}
          leftSection={<Search size={16} aria-hidden />}
          maw={400}
        />
      )}
      {shown.length === 0 && <Nothing title={`No environment matches “${text}”`} />}
      <SimpleGrid cols={{ base: 1, md: 2, xl: 3 }}>
        {shown.map((environment) => (
          <OneCard key={environment.key} environment={environment} />
        ))}
      </SimpleGrid>
    </Stack>
  );
}

function OneCard({ environment }: { environment: EnvironmentEntry }) {
  const { name, key, description, tools } = environment;
  return (
    <Card withBorder component="article" aria-label={name}>
      <Stack gap="xs" h="100%">
        <Group justify="space-between" wrap="nowrap" align="flex-start">
          <Title order={2} size="h4" className="wrap-anywhere">
            <Anchor component={Link} to={environmentPath(key)} inherit>
              {name}
            </Anchor>
          </Title>
          <Marks environment={environment} />
        </Group>
        <Text size="sm" lineClamp={3} flex={1} className="wrap-anywhere">
          {description || "No description."}
        </Text>
        <Text size="sm" c="dimmed" className="wrap-anywhere">
          {tools.length > 0 ? `Tools: ${tools.map((tool) => tool.name).join(", ")}` : "No tools of its own."}
        </Text>
        <Load environment={environment} />
        <Group gap="xs" mt="xs">
          <Button component={Link} to={playgroundPath(key)} size="xs" aria-label={`Play ${name}`}>
            Play
          </Button>
          <Button
            component={Link}
            to={environmentPath(key)}
            size="xs"
            variant="default"
            aria-label={`Details of ${name}`}
          >
            Details
          </Button>
        </Group>
      </Stack>
    </Card>
  );
}

function None() {
  return (
    <Nothing title="This server hosts no environment">
      <Text size="sm">Write one and serve it, or name one in the server’s file:</Text>
      <Code block ta="left">
        {"orsay init my_env\ncd my_env\norsay serve my_env.env:MyEnv"}
      </Code>
    </Nothing>
  );
}
