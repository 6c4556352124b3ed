"""turret over gRPC: completions on the handler of the HTTP routes, with health and reflection."""
