"""Metrics: counters, gauges and histograms, written in Prometheus' text format."""
