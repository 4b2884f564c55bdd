"""Pure rules: what Kubernetes says must happen. No I/O, no clock, no environment, no logging."""
