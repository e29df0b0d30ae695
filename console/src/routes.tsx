// Routes: a page for each path. The code of a page is fetched when it is opened, or before, when there is time.
import { Button, Container, Stack, Text } from "@mantine/core";
import { createBrowserRouter, Link, Navigate, useRouteError } from "react-router";

import { fetchAhead } from "./ahead";
import { routes as environments } from "./pages/environments/routes";
import { routes as evaluations } from "./pages/evaluations/routes";
import { routes as live } from "./pages/live/routes";
import { routes as playground } from "./pages/playground/routes";
import { routes as runs } from "./pages/runs/routes";
import { routes as tasks } from "./pages/tasks/routes";
import { routes as trajectories } from "./pages/trajectories/routes";
import { consolePath } from "./urls";
import { PageHeader } from "./shared/PageHeader";
import { Failure, Waiting } from "./shared/states";
import { Shell } from "./shell/Shell";

const pages = [...environments, ...playground, ...live, ...trajectories, ...runs, ...tasks, ...evaluations];

export const router = createBrowserRouter(
  [
    {
      element: <Shell />,
      hydrateFallbackElement: <Waiting />,
      children: [
        {
          errorElement: <Broken />,
          children: [
            { index: true, element: <Navigate to="/environments" replace /> },
            ...pages,
            { path: "*", element: <Unknown /> },
          ],
        },
      ],
    },
  ],
  { basename: consolePath || "/" },
);

fetchAhead(pages);

function Unknown() {
  return (
    <>
      <PageHeader title="Page not found" />
      <Stack align="flex-start">
        <Text>There is no page at this address.</Text>
        <Button component={Link} to="/environments">
          Go to environments
        </Button>
      </Stack>
    </>
  );
}

function Broken() {
  const error = useRouteError();
  return (
    <Container size="sm" py="xl">
      <Failure error={error} retry={() => window.location.reload()} title="This page failed" />
    </Container>
  );
}
