"""Volumes of pods: ConfigMaps, emptyDir, downward API, and the atomic writer."""
