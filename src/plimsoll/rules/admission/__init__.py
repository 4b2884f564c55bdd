"""What the API server accepts: validation, updates, resizes, LimitRange and ResourceQuota."""
