"""Who runs when: queues, the running set and every request's progress.

Owns: which request gets how many tokens in a step, preemption, limits, stop rules. Knows nothing of torch, HTTP or what
a token means; blocks belong to `turret.kv`, which it asks.
"""

from turret.scheduler.limits import SchedulerLimits
from turret.scheduler.policies import FairPolicy, FcfsPolicy, PriorityPolicy
from turret.scheduler.progress import Progress, RankedList
from turret.scheduler.scheduler import Scheduler

__all__ = ["FairPolicy", "FcfsPolicy", "PriorityPolicy", "Progress", "RankedList", "Scheduler", "SchedulerLimits"]
