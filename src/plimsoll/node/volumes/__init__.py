"""Volumes of pods: ConfigMaps, Secrets, emptyDir, projected and persistent volumes, and the atomic writer."""
