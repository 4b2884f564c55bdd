"""The static CPU manager policy: topology and the assignment of exclusive CPUs."""
