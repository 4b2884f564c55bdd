"""Pod and container cgroups of the node, exclusive CPUs and memory, and the runtime state they depend on."""
