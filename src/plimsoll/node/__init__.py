"""The node agent: runs pods under real limits and reports them, as a kubelet does."""
