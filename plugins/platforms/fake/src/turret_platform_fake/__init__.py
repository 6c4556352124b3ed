"""A pretend device for turret.

Owns: devices, memory and faults that exist on paper only. Knows nothing of real hardware.
"""
