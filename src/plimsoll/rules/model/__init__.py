"""The objects that the rules compute with: pods, nodes, names, policies, observed state."""
