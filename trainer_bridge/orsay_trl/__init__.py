"""The bridge from Orsay to TRL and vLLM; until it lands, TRL's ``OpenRewardSpec`` trains on Orsay servers."""
