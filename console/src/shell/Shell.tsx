// Frame of every page: the name of the server, the way to the pages, colours and key.
import { ActionIcon, AppShell, Badge, Burger, Group, NavLink, ScrollArea, Text, Tooltip } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { Activity, Blocks, ChartLine, FlaskConical, Grid3x3, KeyRound, ListTree } from "lucide-react";
import { memo, type RefObject, useEffect, useRef } from "react";
import { Link, Outlet, ScrollRestoration, useLocation } from "react-router";

import { askForKey, useKey } from "../api/key";
import { useServer } from "../api/queries";
import { JournalState } from "./JournalState";
import { KeyDialog } from "./KeyDialog";
import { SchemeSwitch } from "./SchemeSwitch";

const PAGES = [
  { to: "/environments", name: "Environments", icon: Blocks, also: "/playground" },
  { to: "/live", name: "Live", icon: Activity },
  { to: "/trajectories", name: "Trajectories", icon: ListTree },
  { to: "/runs", name: "Runs", icon: ChartLine },
  { to: "/tasks", name: "Tasks", icon: Grid3x3 },
  { to: "/evaluations", name: "Evaluations", icon: FlaskConical },
];

export function Shell() {
  const [opened, { toggle, close }] = useDisclosure(false);
  const main = useRef<HTMLElement>(null);

  return (
    <AppShell
      header={{ height: 56 }}
      navbar={{ width: 210, breakpoint: "sm", collapsed: { mobile: !opened } }}
      padding={{ base: "sm", sm: "lg" }}
    >
      <a
        className="skip-link"
        href="#main"
        onClick={(event) => {
          event.preventDefault(); // with <base>, the address would lead to another page
          main.current?.focus();
        }}
      >
        Skip to the content
      </a>
      <AppShell.Header>
        <Group h="100%" px="md" justify="space-between" wrap="nowrap">
          <Group gap="sm" wrap="nowrap">
            <Burger opened={opened} onClick={toggle} hiddenFrom="sm" size="sm" aria-label="Navigation" />
            <Text fw={700} size="lg">
              Orsay
            </Text>
            <ServerName />
          </Group>
          <Group gap="xs" wrap="nowrap">
            <KeyButton />
            <SchemeSwitch />
          </Group>
        </Group>
      </AppShell.Header>
      <AppShell.Navbar p="xs" aria-label="Pages">
        <ScrollArea>
          <Pages close={close} main={main} />
        </ScrollArea>
      </AppShell.Navbar>
      <AppShell.Main ref={main} id="main" tabIndex={-1}>
        <JournalState />
        <Outlet />
      </AppShell.Main>
      <KeyDialog />
      <ScrollRestoration />
    </AppShell>
  );
}

/** The way to the pages. It follows the address, so that what stands around it need not. */
const Pages = memo(function Pages({ close, main }: { close: () => void; main: RefObject<HTMLElement | null> }) {
  const { pathname } = useLocation();
  const before = useRef(pathname);

  useEffect(() => {
    if (before.current === pathname) return;
    before.current = pathname;
    close();
    // a new page: whoever uses a keyboard or a screen reader starts at its top
    main.current?.focus({ preventScroll: true });
  }, [pathname, close, main]);

  const here = PAGES.find(({ to, also }) => under(pathname, to) || (also !== undefined && under(pathname, also)))?.to;
  return PAGES.map(({ to, name, icon: Icon }) => (
    <NavLink
      key={to}
      component={Link}
      to={to}
      label={name}
      leftSection={<Icon size={18} aria-hidden />}
      active={to === here}
      variant="filled"
      aria-current={to === here ? "page" : undefined}
      onClick={close}
    />
  ));
});

function under(pathname: string, page: string): boolean {
  return pathname === page || pathname.startsWith(`${page}/`);
}

function ServerName() {
  const server = useServer().data;
  if (!server) return null;
  return (
    <Text size="sm" c="dimmed" truncate maw={{ base: 130, sm: 400 }}>
      {server.name} {server.version}
    </Text>
  );
}

function KeyButton() {
  const { key } = useKey();
  const keys = useServer().data?.keys;
  if (!keys && key === null) return null;
  const label = key === null ? "Enter an API key" : "Change the API key";
  return (
    <Group gap={6} wrap="nowrap">
      {key === null && (
        <Badge variant="outline" color="gray" visibleFrom="xs">
          no key
        </Badge>
      )}
      <Tooltip label={label} withArrow>
        <ActionIcon variant="default" size="lg" aria-label={label} onClick={askForKey}>
          <KeyRound size={18} aria-hidden />
        </ActionIcon>
      </Tooltip>
    </Group>
  );
}
