"""The readable reference attention backend: paged attention in plain torch.

Owns: page layout, step metadata and the attention itself. Knows nothing of models or requests.
"""
