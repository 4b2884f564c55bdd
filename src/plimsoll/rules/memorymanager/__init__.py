"""The static memory manager policy: memory and huge pages of NUMA nodes that Guaranteed pods own."""
