"""Learned selection: data sets out of stores, training, evaluation.  What was trained is used by `dispatch.model`."""
