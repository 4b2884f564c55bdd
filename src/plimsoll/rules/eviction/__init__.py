"""Node-pressure eviction: usage, thresholds met, ranking, and the decision with its reason."""
