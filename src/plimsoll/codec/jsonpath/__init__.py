"""kubectl's JSONPath templates: text with `{expressions}` that select parts of an object."""
