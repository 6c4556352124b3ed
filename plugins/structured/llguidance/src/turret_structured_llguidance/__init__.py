"""Structured output by llguidance.

Owns: what llguidance can be held to, and its objects behind the contract `structured`. Loads llguidance when opened.
"""
