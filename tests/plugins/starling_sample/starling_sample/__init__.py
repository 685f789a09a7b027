"""One part of each kind for Starling, from outside; see pyproject.toml."""
