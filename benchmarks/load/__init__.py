"""What the benchmarks of serving share: servers to load, a client that costs little, and readings of processes.

Owns: nothing beyond a benchmark's run. All traffic is on the loopback interface.
"""
