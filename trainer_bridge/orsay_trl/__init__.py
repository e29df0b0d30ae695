"""The bridge from Orsay to TRL and vLLM; until it lands, TRL's own ``OpenRewardSpec`` trains on an Orsay server."""
