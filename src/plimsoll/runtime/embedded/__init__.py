"""The agent's side of the embedded runtime: a client of the supervisor."""
