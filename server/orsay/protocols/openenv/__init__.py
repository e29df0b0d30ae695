"""OpenEnv: reset, step and state over a WebSocket or HTTP, for released ``openenv`` clients."""
