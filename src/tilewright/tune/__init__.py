"""The tile engine: instances, problem sets, sweeps, reports."""
