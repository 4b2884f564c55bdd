"""Sources of pods beside the API: static pod files and their mirror pods."""
