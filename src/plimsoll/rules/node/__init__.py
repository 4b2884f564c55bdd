"""The node: its configuration, allocatable resources, pod admission and the Node object."""
