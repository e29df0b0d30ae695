// The newest faults: what failed, where, and by which id the server's log knows it.
import { Card, Code, Table, Text, Title } from "@mantine/core";

import { useFaults } from "../../api/queries";
import { NONE } from "../../format";
import { Result } from "../../shared/states";
import { When } from "../../shared/When";

export function Faults() {
  const faults = useFaults();
  return (
    <section aria-labelledby="faults">
      <Title order={2} size="h4" id="faults" mb="xs">
        Recent faults
      </Title>
      <Result of={faults} what="Loading faults">
        {(list) =>
          list.length === 0 ? (
            <Text size="sm" c="dimmed">
              None since the server started.
            </Text>
          ) : (
            <Card withBorder p={0} className="scroll-x" tabIndex={0} role="region" aria-label="Table of faults">
              <Table miw={760} verticalSpacing={6} horizontalSpacing="sm">
                <Table.Thead>
                  <Table.Tr>
                    <Table.Th>When</Table.Th>
                    <Table.Th>Fault</Table.Th>
                    <Table.Th>Environment</Table.Th>
                    <Table.Th>Tool</Table.Th>
                    <Table.Th>Message</Table.Th>
                    <Table.Th>Id</Table.Th>
                  </Table.Tr>
                </Table.Thead>
                <Table.Tbody>
                  {list.map((each) => (
                    <Table.Tr key={each.id}>
                      <Table.Td>
                        <When at={each.at} />
                      </Table.Td>
                      <Table.Td>{each.fault}</Table.Td>
                      <Table.Td>{each.environment ?? NONE}</Table.Td>
                      <Table.Td>{each.tool ?? NONE}</Table.Td>
                      <Table.Td className="wrap-anywhere" maw={420}>
                        <Text size="sm" lineClamp={3} title={each.message}>
                          {each.message}
                        </Text>
                      </Table.Td>
                      <Table.Td>
                        <Code>{each.id}</Code>
                      </Table.Td>
                    </Table.Tr>
                  ))}
                </Table.Tbody>
              </Table>
            </Card>
          )
        }
      </Result>
    </section>
  );
}
