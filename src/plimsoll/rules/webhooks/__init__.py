"""Which requests concern a webhook or a policy, and what their configurations may contain."""
