"""The HTTP front: routes, wire models, streaming, errors, metrics.

Owns: everything a client sees over HTTP. Knows nothing of schedulers or torch. `turret.server.app.create_app` is the
door; this package itself imports nothing, so that the parts without HTTP stay cheap to use.
"""
