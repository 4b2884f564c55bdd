"""YAML as kubectl reads it: scalar rules, duplicate keys with line numbers, limits on depth and aliases."""
