"""Sockets between front ends and the engine process.

Owns: endpoints, the encoding of frames, the two ends of the wire. Knows nothing of requests' meaning: a frame goes in
at one end and comes out at the other, or is dropped with a line in the log when it makes no sense.
"""

from turret.transport.endpoint import PrivateEndpoint
from turret.transport.sockets import MAX_FRAME_BYTES, ClientSocket, EngineSocket

__all__ = ["MAX_FRAME_BYTES", "ClientSocket", "EngineSocket", "PrivateEndpoint"]
