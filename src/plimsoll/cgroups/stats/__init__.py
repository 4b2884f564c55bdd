"""What the kernel reports about cgroups: usage, the live tree, and notifications (PSI, inotify, eventfd)."""
