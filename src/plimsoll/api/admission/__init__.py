"""Admission before a write: namespace lifecycle, defaults, Pod Security, LimitRange, ResourceQuota, node capacity."""
