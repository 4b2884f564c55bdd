"""What `plimsoll attach` writes on a node that a kubelet runs: policy, values at every level, and when it stops."""
