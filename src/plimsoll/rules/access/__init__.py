"""Who may do what: the claims of service account tokens, RBAC rules, and the roles that every cluster has."""
