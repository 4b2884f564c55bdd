"""The desired cgroup tree with a value in every file, its reasons, and the steps from an observed tree to it."""
