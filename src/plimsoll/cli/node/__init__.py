"""The commands about this machine as a node: node, run, cgroup, tree, whose, oom, pressure."""
