"""The commands about objects of a cluster: get, describe, apply, delete, logs, exec, drain, wait and others."""
