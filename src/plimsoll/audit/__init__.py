"""Reads a node for `plimsoll audit`: its cgroups, processes, kernel and kubelet, live or from a dump."""
