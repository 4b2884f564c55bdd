"""Controllers of persistent storage: the binder of claims and volumes, and the protection of those in use."""
