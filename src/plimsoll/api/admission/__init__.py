"""Admission: namespace lifecycle, defaults, LimitRange, ResourceQuota and node capacity, checked before a write."""
