"""The backends: how a spec becomes code on a target."""
