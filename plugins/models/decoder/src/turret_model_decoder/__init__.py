"""Decoder families as declarative specs: one short page a family.

Owns: what each family's config means. Knows nothing of how a decoder runs.
"""
