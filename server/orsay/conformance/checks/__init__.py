"""The checks, by topic. Each module defines instances of Check; ``suite`` collects them."""
