"""The store below the API server: a log in SQLite or etcd, an index and a window of history in memory, watches."""
