"""The default policy: evict where the next hit is least likely for the room that it takes.

Idea
----
Every policy guesses which name will not be needed for the longest time. LRU goes by age (time since
the last use), LFU by the number of uses, and either is wrong on some workload. Both are evidence.
Names that were used as often, and unused for as long, look alike to a cache; so it can *count* what
became of their like, and evict where the count is worst. Nothing is tuned to a workload.

A held name's worth is its *Gittins index* [1]: over all times that one might go on keeping it, the
best ratio of hits to expect to room times time spent. It looks ahead: chunks of a conversation are
worth little right after a turn and much when the next is due, and chunks past that time are not.
To evict the lowest value is the rule of EVA [2] and LHD [3], which estimate other ratios.

Structure
---------
Three queues, of names used *once*, *twice* and *often*, each in order of last use. Only the names
at the three fronts are compared. Within a queue the longest unused leaves first, which keeps chains
in order and makes an eviction about as cheap as LRU's. (LHD compares a random sample of names for
each eviction, which tears chains.) The clock ticks at each read and each insert. Ages fall into
buckets that double in width. Each queue has two counts for each bucket: of *hits* at that age, and
of names *lost* at that age: never asked for again, as far as we can know.

* A name that is read counts as a hit at its age, and moves to the next queue.
* An evicted name becomes a *ghost* [4] with its queue and its last use, and counts as lost at the
  age at which it will be forgotten. If it returns before, that is taken back: it counts as a hit,
  and enters the next queue. Ghosts cover the last two to four cachefuls of evictions. So the policy
  learns from what a larger cache would have hit, not only from what its own choices let happen.
* When something is evicted, and four cachefuls of ticks have passed since the last time, the
  indices are computed anew and all counts are multiplied by 0.9.

From counts to indices: of the names that reach a bucket, each spends the bucket's width there, or
half of it if it ends there. Hits over that time is the bucket's rate, and the index is the largest
mean rate of any run of buckets that begins at this one. Eight imagined names end in each bucket. By
them, a name used ``n`` times is used again with probability ``n / (n + 1)``, the rule of
succession, at a time of any order of magnitude alike. So before there is evidence, this is an LRU
that prefers names used more often.

Nothing here knows sizes. A tier's capacity in entries, its cacheful, is what is held when something
is evicted.

What was tried
--------------
On the public traces of LLM requests that ``benchmarks/simulate.py`` was checked with (two of chat,
one of coding agents, one of retrieval; capacities 1 to 20 % of the distinct chunks), the mean of
this policy's hits to Belady's is 71.3 %; ARC's 68.8, S3-FIFO's 68.1, LRU's 65.1. The constants were
picked on these same traces, from the middle of where they matter little, so 71.3 is not a promise
for others. Like LRU and ARC it gets nothing from a loop that is longer than the cache.

Variants that did worse there, most first: ghosts that forget single names by chance and so tear
chains; return to the first queue in spite of a ghost; to offer the newest names of each queue, too;
half as many ghosts; two queues or four; the rate of the present bucket instead of the index.

Sources
-------
1. Gittins, "Bandit processes and dynamic allocation indices", J. R. Stat. Soc. B 41 (1979).
2. Beckmann, Sanchez, "Maximizing cache performance under uncertainty", HPCA 2017.
3. Beckmann, Chen, Cidon, "LHD: improving cache hit rate by maximizing hit density", NSDI 2018.
4. Megiddo, Modha, "ARC: a self-tuning, low overhead replacement cache", FAST 2003. Queues by number
   of uses: Zhou, Philbin, Li, "The multi-queue replacement algorithm for second level buffer
   caches", USENIX ATC 2001.
"""

from __future__ import annotations

from typing import Final

from tieredkv.keys import Tenant
from tieredkv.pool.eviction.ghosts import NOTE_BITS, Ghosts
from tieredkv.pool.eviction.queues import QueuePolicy

__all__ = ["Gittins"]

_NUM_QUEUES: Final = 3
_PERIOD: Final = 4  # ticks for each name held
_FADING: Final = 0.9
_IMAGINED_NAMES: Final = 8.0
_GHOSTS_PER_NAME: Final = 2  # in each of two generations

# A ghost's note: queue, bucket in which it counts as lost, last use.
_STAMP_BITS: Final = 40  # a difference of 2**40 ticks is taken for none
_STAMP_MASK: Final = (1 << _STAMP_BITS) - 1
_BUCKET_BITS: Final = 6
_QUEUE_SHIFT: Final = NOTE_BITS - 2
_NUM_BUCKETS: Final = _STAMP_BITS + 1  # an age's bucket is its bit_length()


class Gittins(QueuePolicy):
    """Evicts the name with the lowest hit rate to expect, by what became of names like it.

    The module's docstring tells how, and why.
    """

    def __init__(self) -> None:
        super().__init__(_NUM_QUEUES)  # the number of each name is the tick of its last use
        self._once, self._twice, self._often = self._queues
        self._now = 0
        self._hits = [[0.0] * _NUM_BUCKETS for _ in range(_NUM_QUEUES)]
        self._lost = [[0.0] * _NUM_BUCKETS for _ in range(_NUM_QUEUES)]
        self._hits_once, self._hits_twice, self._hits_often = self._hits
        self._indices = [[0.0] * _NUM_BUCKETS for _ in range(_NUM_QUEUES)]
        self._compared = tuple(zip(self._queues, self._indices, strict=True))
        self._learn()
        self._learn_at = 0  # not before something was evicted
        self._ghosts = Ghosts()
        self._turned_at = 0
        self._generation_ticks = 0  # that the last whole generation of ghosts took

    def insert(self, name: str) -> None:
        """See `EvictionPolicy.insert`."""
        if name in self._once or name in self._twice or name in self._often or name in self._parked:
            self.access(name)
            return
        self._now = now = self._now + 1
        note = self._ghosts.take(name)
        if note is None:
            self._once[name] = now
            return
        queue = note >> _QUEUE_SHIFT
        lost = self._lost[queue]
        bucket = note >> _STAMP_BITS & (1 << _BUCKET_BITS) - 1
        lost[bucket] = max(lost[bucket] - 1.0, 0.0)  # it may have faded since
        self._hits[queue][((now - note) & _STAMP_MASK).bit_length()] += 1.0
        self._queues[min(queue + 1, _NUM_QUEUES - 1)][name] = now

    def access(self, name: str) -> None:
        """See `EvictionPolicy.access`."""
        now = self._now + 1
        often = self._often
        if (stamp := often.get(name)) is not None:
            self._hits_often[(now - stamp).bit_length()] += 1.0
            often[name] = now
            often.move_to_end(name)
        elif (stamp := self._twice.pop(name, None)) is not None:
            self._hits_twice[(now - stamp).bit_length()] += 1.0
            often[name] = now
        elif (stamp := self._once.pop(name, None)) is not None:
            self._hits_once[(now - stamp).bit_length()] += 1.0
            self._twice[name] = now
        elif name in self._parked:
            self.unpark(name)
            self.access(name)
            return
        else:
            return
        self._now = now

    def refresh(self, name: str) -> None:
        """See `EvictionPolicy.refresh`."""
        for queue in self._queues:
            if name in queue:
                queue[name] = self._now
                queue.move_to_end(name)
                return

    def remove(self, name: str, *, evicted: bool) -> None:
        """See `EvictionPolicy.remove`."""
        for number, queue in enumerate(self._queues):
            stamp = queue.pop(name, None)
            if stamp is not None:
                if evicted:
                    self._haunt(name, number, stamp)
                return
        self._parked.pop(name, None)

    def _next(self, tenant: Tenant) -> str | None:
        now = self._now
        lowest = float("inf")
        victim = None
        for queue, indices in self._compared:
            for name, stamp in queue.items():
                index = indices[(now - stamp).bit_length()]
                if index < lowest:
                    lowest = index
                    victim = name
                break
        return victim

    def _haunt(self, name: str, number: int, stamp: int) -> None:
        """Turn an evicted name into a ghost."""
        now = self._now
        if not self._ghosts.room:
            self._turn()
        # It will be forgotten after what is left of this generation, half of it on average, and the
        # whole next one.
        lost_at = now - stamp + 3 * (self._generation_ticks or now) // 2
        bucket = min(lost_at.bit_length(), _NUM_BUCKETS - 1)
        self._lost[number][bucket] += 1.0
        note = number << _QUEUE_SHIFT | bucket << _STAMP_BITS | stamp & _STAMP_MASK
        self._ghosts.add(name, note)
        if now >= self._learn_at:
            self._learn_at = now + _PERIOD * (len(self) + 1)
            self._learn()

    def _turn(self) -> None:
        """Begin a generation of ghosts."""
        held = len(self) + 1
        if self._turned_at:
            self._generation_ticks = self._now - self._turned_at
        else:
            self._learn_at = _PERIOD * held
        self._turned_at = self._now
        self._ghosts.turn(_GHOSTS_PER_NAME * held)

    def _learn(self) -> None:
        """Compute the index of each queue and bucket from the counts, and let those fade."""
        for number, indices in enumerate(self._indices):
            expected = (number + 1) / (number + 2)
            indices[:] = _indices(self._hits[number], self._lost[number], expected)
        for counts in (*self._hits, *self._lost):
            counts[:] = [_FADING * count for count in counts]


def _indices(hits: list[float], lost: list[float], expected: float) -> list[float]:
    """Return for each bucket the largest ratio of hits to time over any run that begins there.

    Args:
        hits: Names hit, by bucket.
        lost: Names lost, by bucket.
        expected: Fraction of hits among the imagined names.
    """
    indices = [0.0] * len(hits)
    runs: list[tuple[float, float]] = []  # of later buckets, the nearest last, best ratios falling
    beyond = 0.0
    for bucket in reversed(range(len(hits))):
        width = 1 << max(bucket - 1, 0)
        ended = hits[bucket] + lost[bucket]
        run_hits = hits[bucket] + _IMAGINED_NAMES * expected
        run_time = width * (beyond + ended / 2 + _IMAGINED_NAMES)
        beyond += ended
        while runs and runs[-1][0] * run_time > run_hits * runs[-1][1]:
            more_hits, more_time = runs.pop()
            run_hits += more_hits
            run_time += more_time
        runs.append((run_hits, run_time))
        indices[bucket] = run_hits / run_time
    return indices
