"""y[i, j] = activation(alpha * x[i, j] * scale[i]): the small op of docs/adding-an-op.md."""
