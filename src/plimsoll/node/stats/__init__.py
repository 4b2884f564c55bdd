"""Usage of the node, its pods and containers: /stats/summary and /metrics."""
