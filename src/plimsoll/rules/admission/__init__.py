"""What the API server accepts: validation, updates, resizes, Pod Security, LimitRange, quotas."""
