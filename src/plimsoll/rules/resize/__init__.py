"""In-place vertical scaling: allocation, verdict, steps, status, conditions, and the forecast of a request."""
