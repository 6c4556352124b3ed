"""Structured output by xgrammar.

Owns: what xgrammar can be held to, and its objects behind the contract `structured`. Loads xgrammar when opened.
"""
