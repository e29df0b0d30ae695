// Moving about without a mouse: which keys a page knows, and a dialog that lists them.
import { Button, Group, Kbd, Modal, Table } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { Keyboard } from "lucide-react";
import { useEffect, useRef } from "react";

export interface KeyAction {
  /** As `KeyboardEvent.key` calls them. */
  keys: string[];
  does: string;
  run: () => void;
}

const SHOWN: Record<string, string> = { ArrowDown: "↓", ArrowUp: "↑", ArrowLeft: "←", ArrowRight: "→" };

/** Keys act unless one is typing, or a dialog or menu is open. */
export function useKeys(actions: KeyAction[]): void {
  const current = useRef(actions);
  current.current = actions;
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      const target = event.target instanceof Element ? event.target : null;
      if (target?.closest("input, textarea, select, [contenteditable=true], [role=menu], [role=listbox]")) return;
      if (document.querySelector("[role=dialog]")) return;
      const action = current.current.find(({ keys }) => keys.includes(event.key));
      if (!action) return;
      event.preventDefault();
      action.run();
    };
    window.addEventListener("keydown", pressed);
    return () => window.removeEventListener("keydown", pressed);
  }, []);
}

/** A button, and the key `?`, that show what keys do. Enter and Tab do what they do everywhere. */
export function KeyHelp({ actions, more = [] }: { actions: KeyAction[]; more?: { keys: string[]; does: string }[] }) {
  const [opened, { open, close }] = useDisclosure(false);
  const asked = useRef(false); // the dialog is made when it is first asked for
  asked.current ||= opened;
  useKeys([...actions, { keys: ["?"], does: "show this", run: open }]);
  return (
    <>
      <Button variant="default" leftSection={<Keyboard size={16} aria-hidden />} onClick={open} visibleFrom="sm">
        Keys
      </Button>
      {asked.current && (
        <Modal opened={opened} onClose={close} title="Keys of this page" closeButtonProps={{ "aria-label": "Close" }}>
          <Table>
            <Table.Tbody>
              {[...actions, ...more, { keys: ["?"], does: "show these keys" }].map(({ keys, does }) => (
                <Table.Tr key={does}>
                  <Table.Td w={120}>
                    <Group gap={4}>
                      {keys.map((key) => (
                        <Kbd key={key}>{SHOWN[key] ?? key}</Kbd>
                      ))}
                    </Group>
                  </Table.Td>
                  <Table.Td>{does}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Modal>
      )}
    </>
  );
}

/** Gives the focus to the next or previous of the elements that `selector` finds, and brings it into view. */
export function moveFocus(selector: string, by: 1 | -1): void {
  const all = [...document.querySelectorAll<HTMLElement>(selector)];
  const here = all.indexOf(document.activeElement as HTMLElement);
  const next = here < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(here + by, 0), all.length - 1);
  all[next]?.focus();
  all[next]?.scrollIntoView({ block: "nearest" });
}
