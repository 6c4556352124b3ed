"""Model-building layers, dispatch of named ops, and the declarative decoder.

Owns: how a forward is put together. Knows nothing of queues, requests or files.
"""
