"""Other programs' calls, each a thin layer over ours."""
