"""What a node's kernel has against what its pods declare: evidence, a table of rules, findings with advice."""
