"""The topology manager: merges the hints of the resource managers, and admits a pod by its policy and scope."""
