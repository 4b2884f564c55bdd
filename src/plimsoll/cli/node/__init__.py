"""The commands about this machine as a node: node, run, cgroup, tree, top, whose, oom, pressure."""
