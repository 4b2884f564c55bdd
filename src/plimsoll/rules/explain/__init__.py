"""Answers for people and fleets: the explanation of a pod on a node, advice, and the batch form of it."""
