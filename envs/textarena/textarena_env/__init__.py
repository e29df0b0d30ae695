"""TextArena: games of the package ``textarena``, one player against the puzzle or a scripted opponent."""
