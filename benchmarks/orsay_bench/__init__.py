"""Load generators and reports behind `benchmarks/serve` and `benchmarks/client`; no part of the product."""
