// Asks for the API key: when the server refused a request, or when the person wants to change it.
import { Alert, Button, Group, Modal, PasswordInput, Stack, Text } from "@mantine/core";
import { type FormEvent, useState } from "react";

import { dismissKey, forgetKey, saveKey, useKey } from "../api/key";
import { queryClient } from "../api/queries";

export function KeyDialog() {
  const { key, wanted, refused } = useKey();
  const [text, setText] = useState("");

  function save(event: FormEvent) {
    event.preventDefault();
    if (!text.trim()) return;
    saveKey(text.trim());
    setText("");
    void queryClient.resetQueries();
  }

  function forget() {
    forgetKey();
    setText("");
    void queryClient.resetQueries();
  }

  return (
    <Modal opened={wanted} onClose={dismissKey} title="API key" centered>
      <form onSubmit={save}>
        <Stack>
          {refused && (
            <Alert color="red" variant="outline" role="alert">
              The server refused this key.
            </Alert>
          )}
          <Text size="sm">
            This server requires an API key. The key is kept in this tab and forgotten when the tab closes.
          </Text>
          <PasswordInput
            label="Key"
            value={text}
            onChange={(event) => setText(event.currentTarget.value)}
            autoComplete="off"
            data-autofocus
            visibilityToggleButtonProps={{ "aria-label": "Show the key" }}
          />
          <Group justify="flex-end">
            {key !== null && (
              <Button variant="default" onClick={forget}>
                Forget the key
              </Button>
            )}
            <Button type="submit" disabled={!text.trim()}>
              Use this key
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
