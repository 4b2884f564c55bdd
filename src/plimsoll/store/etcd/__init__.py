"""The log in etcd, or in what serves its API: conditional writes, one watch that feeds the cache, fail-over."""
