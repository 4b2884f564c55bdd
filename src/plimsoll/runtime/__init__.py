"""Container runtimes: the interface, the embedded runtime with its supervisor, and CRI."""
