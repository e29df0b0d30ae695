// The button that goes from the system's colours to light, to dark, and back.
import { ActionIcon, type MantineColorScheme, Tooltip, useMantineColorScheme } from "@mantine/core";
import { Monitor, Moon, Sun } from "lucide-react";

const NEXT: Record<MantineColorScheme, MantineColorScheme> = { auto: "light", light: "dark", dark: "auto" };
const NAMES: Record<MantineColorScheme, string> = { auto: "as the system", light: "light", dark: "dark" };
const ICONS: Record<MantineColorScheme, typeof Sun> = { auto: Monitor, light: Sun, dark: Moon };

export function SchemeSwitch() {
  const { colorScheme, setColorScheme } = useMantineColorScheme({ keepTransitions: true });
  const Icon = ICONS[colorScheme];
  const label = `Colours: ${NAMES[colorScheme]}. Change to ${NAMES[NEXT[colorScheme]]}`;
  return (
    <Tooltip label={label} withArrow>
      <ActionIcon variant="default" size="lg" aria-label={label} onClick={() => setColorScheme(NEXT[colorScheme])}>
        <Icon size={18} aria-hidden />
      </ActionIcon>
    </Tooltip>
  );
}
