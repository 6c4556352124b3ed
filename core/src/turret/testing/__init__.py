"""The conformance kit and fakes, for plugin authors and for turret's own tests.

Owns how a plugin is held against its contract. Knows no particular plugin.
"""
