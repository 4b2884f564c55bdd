"""The cgroup manager: plans changes against the desired state, and writes them as a transaction with a journal."""
