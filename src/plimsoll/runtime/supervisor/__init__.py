"""The supervisor of the embedded runtime: parent of every embedded container, and nothing else.

It is a process of its own so that the agent can die and come back without touching a container. It is small because it
must never be the one that the kernel kills: only the standard library, one thread, one loop (`loop`). The agent asks on
a unix socket (`wire`); `supervisor` keeps the table of sandboxes and containers; `launch` is what happens in a child
between fork and exec; `root_view` is what a container sees as its file system; `log_writer` writes CRI logs; `journal`
remembers exit codes beyond the supervisor's own life.

Nothing is ever mounted in the host's mount namespace and no namespace is kept by more than an open fd, so when the
supervisor dies, of whatever, the kernel takes away all that it made.
"""
