"""Container runtimes that speak CRI over a unix socket: containerd, CRI-O."""
