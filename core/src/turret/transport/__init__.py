"""Sockets between front ends and the engine process.

Owns: endpoints, the encoding of frames, the two ends of the wire, the counters that front ends share. Knows nothing of
requests' meaning: a frame goes in at one end and comes out at the other, or is dropped with a line in the log when it
makes no sense.
"""

from turret.transport.endpoint import PrivateEndpoint
from turret.transport.ledger import Ledger, SharedCount
from turret.transport.sockets import MAX_FRAME_BYTES, ClientSocket, EngineSocket

__all__ = ["MAX_FRAME_BYTES", "ClientSocket", "EngineSocket", "Ledger", "PrivateEndpoint", "SharedCount"]
