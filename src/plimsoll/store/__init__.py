"""The embedded store below the API server: SQLite on disk, an index and a window of history in memory, watches."""
