"""`plimsoll attach` on a node that a kubelet runs: an NRI plugin, writes to the levels above it, a journal of both."""
