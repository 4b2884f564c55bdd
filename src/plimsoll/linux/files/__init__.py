"""Files on the disk: atomic replacement, append-only logs, locks, private directories, walks that follow no link."""
