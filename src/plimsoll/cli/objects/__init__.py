"""The commands about objects of a cluster: get, describe, apply, logs, exec, port-forward, drain, wait and others."""
