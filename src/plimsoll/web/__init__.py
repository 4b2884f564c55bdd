"""The dashboard: its pages, browser sessions, the stream of changes, explanations, resize forecasts and incidents."""
