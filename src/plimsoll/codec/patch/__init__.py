"""Patches: JSON patch, merge patch, strategic merge patch, server-side apply and managed fields."""
