"""The log in SQLite on this machine's disk: group commit, damage detected, backup and restore."""
