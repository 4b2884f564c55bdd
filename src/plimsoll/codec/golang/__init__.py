"""Go's text forms: times, durations and fmt verbs, as Kubernetes prints them."""
