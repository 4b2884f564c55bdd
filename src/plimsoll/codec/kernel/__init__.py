"""Text of the kernel and of the kubelet: cgroup files, /proc, kmsg, CRI logs, checkpoints of resource managers."""
