"""Keywords of Kubernetes in schemas of custom kinds."""

EMBEDDED = "x-kubernetes-embedded-resource"
INT_OR_STRING = "x-kubernetes-int-or-string"
PRESERVE = "x-kubernetes-preserve-unknown-fields"
RULES = "x-kubernetes-validations"
