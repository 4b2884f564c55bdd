"""Controllers of certificate requests: old ones are removed."""
