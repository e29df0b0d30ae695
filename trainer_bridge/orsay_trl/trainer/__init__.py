"""TRL's trainers: environments, rewards, metrics and callbacks."""
