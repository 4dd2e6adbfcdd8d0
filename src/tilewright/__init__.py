"""Tilewright: tile kernels declared, generated, built, picked and run from Python."""

__version__ = "0.1.0"
