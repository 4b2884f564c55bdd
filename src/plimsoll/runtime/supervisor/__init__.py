"""The supervisor of the embedded runtime: parent of every embedded container, and nothing else.

It is a process of its own so that the agent can restart without touching a container. It is small because the kernel
must never choose it as an OOM victim: only the standard library, one thread, one loop (`loop`). The agent calls it over
a unix socket (`wire`); `state` has the sandboxes and containers; `child` is what happens in a child between fork and
exec; `rootfs` is a container's root file system; `log_writer` writes CRI logs; `journal` keeps exit codes beyond the
supervisor's own life.

Nothing is mounted in the host's mount namespace, and namespaces are kept by open fds only, so when the supervisor dies
the kernel removes everything that it made.
"""
