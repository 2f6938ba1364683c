"""Benchmarks: programs that compare the product with named baselines in one run. `make bench` runs them."""
