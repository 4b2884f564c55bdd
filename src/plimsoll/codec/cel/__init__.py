"""The Common Expression Language, as Kubernetes uses it: parser, type checker with cost estimates, and evaluator."""
