"""The checks, by what they look at. Each module's names are instances of Check; ``suite`` collects them."""
