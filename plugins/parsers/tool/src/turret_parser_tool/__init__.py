"""Tool-call parsers for turret: a few incremental grammars and a table of model families."""
