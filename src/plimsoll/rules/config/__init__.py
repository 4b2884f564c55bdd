"""The kubelet configuration: its fields, defaults, parsing and validation."""
