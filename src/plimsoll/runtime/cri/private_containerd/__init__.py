"""A containerd that Plimsoll starts for itself, and the images it gets without a registry."""
