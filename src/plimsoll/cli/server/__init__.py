"""The commands that run a control plane: api, scheduler, up, reset."""
