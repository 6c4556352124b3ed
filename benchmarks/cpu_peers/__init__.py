"""Parts of benchmarks/cpu.py: engines as processes that take jobs, servers under load, and what is required of whom."""
