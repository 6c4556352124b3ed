"""The routes, one module an API.

Owns: what each path does. Knows nothing of the app they are mounted on.
"""
