"""The node as it is now and as it was: figures of every cgroup, signals, orders and marks, for dashboards (`/live`)."""
