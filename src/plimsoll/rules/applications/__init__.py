"""What language runtimes make of a container's limits: memory, CPUs, heap and threads that they choose."""
