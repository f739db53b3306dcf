"""Second implementations of the policies: lists and searches, from their descriptions."""

from __future__ import annotations

import math

from tieredkv.keys import tenant_of


class Lists:
    """Names in several lists, what leaves first at the front, and names beside them, parked."""

    def __init__(self, how_many: int) -> None:
        self.lists: list[list[str]] = [[] for _ in range(how_many)]
        self.parked: dict[str, int] = {}

    @property
    def held(self) -> int:
        return sum(len(names) for names in self.lists) + len(self.parked)

    def where(self, name: str) -> int | None:
        return next((i for i, names in enumerate(self.lists) if name in names), None)

    def move(self, name: str, target: int) -> None:
        place = self.where(name)
        if place is not None:
            self.lists[place].remove(name)
        self.lists[target].append(name)

    def park(self, name: str) -> None:
        place = self.where(name)
        if place is not None:
            self.lists[place].remove(name)
            self.parked[name] = place

    def unpark(self, name: str) -> None:
        if name in self.parked:
            self.lists[self.parked.pop(name)].insert(0, name)

    def take_out(self, name: str) -> int | None:
        """Forget a name; return the list in which it was."""
        self.unpark(name)
        place = self.where(name)
        if place is not None:
            self.lists[place].remove(name)
        return place


class LRUOracle(Lists):
    def __init__(self) -> None:
        super().__init__(1)

    def insert(self, name: str) -> None:
        self.unpark(name)
        self.move(name, 0)

    def access(self, name: str) -> None:
        self.unpark(name)
        self.refresh(name)

    def refresh(self, name: str) -> None:
        if self.where(name) is not None:
            self.move(name, 0)

    def remove(self, name: str, *, evicted: bool) -> None:
        self.take_out(name)

    def choose(self) -> str | None:
        return self.lists[0][0] if self.lists[0] else None


class IsolatedOracle:
    """Who leaves: the oldest of the tenant with most names, the longest so among equals."""

    def __init__(self) -> None:
        self.tenants: dict[str, LRUOracle] = {}
        self.since: dict[str, tuple[int, int]] = {}  # tenant: its number of names, since when
        self.clock = 0

    def _of(self, name: str) -> LRUOracle:
        return self.tenants.setdefault(tenant_of(name), LRUOracle())

    def _count(self) -> None:
        self.clock += 1
        for tenant, oracle in self.tenants.items():
            count = len(oracle.lists[0])
            if self.since.get(tenant, (0, 0))[0] != count:
                self.since[tenant] = (count, self.clock)

    def insert(self, name: str) -> None:
        self._of(name).insert(name)
        self._count()

    def access(self, name: str) -> None:
        self._of(name).access(name)
        self._count()

    def refresh(self, name: str) -> None:
        self._of(name).refresh(name)

    def remove(self, name: str, *, evicted: bool) -> None:
        self._of(name).remove(name, evicted=evicted)
        self._count()

    def park(self, name: str) -> None:
        self._of(name).park(name)
        self._count()

    def unpark(self, name: str) -> None:
        self._of(name).unpark(name)
        self._count()

    def choose(self) -> str | None:
        if not self.since:
            return None
        largest = min(
            self.since, key=lambda tenant: (-self.since[tenant][0], self.since[tenant][1])
        )
        return self.tenants[largest].choose()


class S3FIFOOracle(Lists):
    SMALL, MAIN = 0, 1

    def __init__(self) -> None:
        super().__init__(2)
        self.reads: dict[str, int] = {}
        self.ghosts: list[str] = []

    def insert(self, name: str) -> None:
        if self.where(name) is not None or name in self.parked:
            self.access(name)
            return
        self.reads[name] = 0
        if name in self.ghosts:
            self.ghosts.remove(name)
            self.move(name, self.MAIN)
        else:
            self.move(name, self.SMALL)

    def access(self, name: str) -> None:
        self.unpark(name)
        if self.where(name) is not None:
            self.reads[name] = min(self.reads[name] + 1, 3)

    def refresh(self, name: str) -> None:
        pass

    def remove(self, name: str, *, evicted: bool) -> None:
        held = self.held
        if self.take_out(name) == self.SMALL and evicted:
            self.ghosts.append(name)
            del self.ghosts[: max(0, len(self.ghosts) - 4 * held)]

    def choose(self) -> str | None:
        small, main = self.lists
        due = max(1, self.held // 10)
        if len(small) >= due or not main:
            while small:
                name = small[0]
                if self.reads[name] == 0:
                    return name
                self.reads[name] = 0
                self.move(name, self.MAIN)
                if len(main) > self.held - due:
                    break
        while main:
            name = main[0]
            if self.reads[name] == 0:
                return name
            self.reads[name] -= 1
            self.move(name, self.MAIN)
        return None


class ARCOracle(Lists):
    ONCE, AGAIN = 0, 1

    def __init__(self) -> None:
        super().__init__(2)
        self.ghosts: tuple[list[str], list[str]] = ([], [])
        self.target = 0.0
        self.full = 0

    def insert(self, name: str) -> None:
        if self.where(name) is not None or name in self.parked:
            self.access(name)
            return
        once, again = self.ghosts
        capacity = max(self.full, self.held)
        if name in once:
            self.target = min(capacity, self.target + max(1, len(again) / len(once)))
            once.remove(name)
            self.move(name, self.AGAIN)
        elif name in again:
            self.target = max(0, self.target - max(1, len(once) / len(again)))
            again.remove(name)
            self.move(name, self.AGAIN)
        else:
            self.move(name, self.ONCE)
        self._forget()

    def access(self, name: str) -> None:
        self.unpark(name)
        if self.where(name) is not None:
            self.move(name, self.AGAIN)

    def refresh(self, name: str) -> None:
        place = self.where(name)
        if place is not None:
            self.move(name, place)

    def remove(self, name: str, *, evicted: bool) -> None:
        held = self.held
        place = self.take_out(name)
        if place is not None and evicted:
            self.full = held
            self.ghosts[place].append(name)
        self._forget()

    def choose(self) -> str | None:
        once, again = self.lists
        if not once and not again:
            return None
        return once[0] if not again or (once and len(once) > self.target) else again[0]

    def _forget(self) -> None:
        capacity = max(self.full, self.held)
        once, again = self.ghosts
        del once[: max(0, len(once) - max(0, capacity - len(self.lists[self.ONCE])))]
        del again[: max(0, len(again) - max(0, 2 * capacity - self.held - len(once)))]


class GittinsOracle(Lists):
    """Counts in dictionaries, ghosts in lists, indices by trying every run of buckets."""

    BUCKETS = range(41)

    def __init__(self) -> None:
        super().__init__(3)
        self.used: dict[str, int] = {}
        self.clock = 0
        self.hits: dict[tuple[int, int], float] = {}
        self.lost: dict[tuple[int, int], float] = {}
        self.ghosts: list[dict[str, tuple[int, int, int]]] = [{}, {}]  # older, recent
        self.quota = 0
        self.added = 0
        self.generation_began = 0
        self.generation_took = 0
        self.learn_at = 0
        self.index = {(q, b): self._index(q, b) for q in range(3) for b in self.BUCKETS}

    @staticmethod
    def bucket(age: int) -> int:
        return 0 if age == 0 else math.floor(math.log2(age)) + 1

    def _hit(self, queue: int, age: int) -> None:
        key = queue, self.bucket(age)
        self.hits[key] = self.hits.get(key, 0) + 1

    def insert(self, name: str) -> None:
        if self.where(name) is not None or name in self.parked:
            self.access(name)
            return
        self.clock += 1
        target = 0
        for generation in self.ghosts:
            if name in generation:
                queue, bucket, used = generation.pop(name)
                self.lost[queue, bucket] = max(0, self.lost.get((queue, bucket), 0) - 1)
                self._hit(queue, self.clock - used)
                target = min(queue + 1, 2)
        self.used[name] = self.clock
        self.move(name, target)

    def access(self, name: str) -> None:
        self.unpark(name)
        queue = self.where(name)
        if queue is not None:
            self.clock += 1
            self._hit(queue, self.clock - self.used[name])
            self.used[name] = self.clock
            self.move(name, min(queue + 1, 2))

    def refresh(self, name: str) -> None:
        queue = self.where(name)
        if queue is not None:
            self.used[name] = self.clock
            self.move(name, queue)

    def remove(self, name: str, *, evicted: bool) -> None:
        held = self.held
        queue = self.take_out(name)
        if queue is None or not evicted:
            return
        if self.added == self.quota:
            if self.quota == 0:
                self.learn_at = 4 * held
            else:
                self.generation_took = self.clock - self.generation_began
            self.generation_began = self.clock
            self.ghosts = [self.ghosts[1], {}]
            self.quota, self.added = 2 * held, 0
        age = self.clock - self.used[name] + 3 * (self.generation_took or self.clock) // 2
        key = queue, self.bucket(age)
        self.lost[key] = self.lost.get(key, 0) + 1
        self.ghosts[1][name] = queue, key[1], self.used[name]
        self.added += 1
        if self.clock >= self.learn_at:
            self.learn_at = self.clock + 4 * held
            self.index = {(q, b): self._index(q, b) for q in range(3) for b in self.BUCKETS}
            for counts in (self.hits, self.lost):
                for key in counts:
                    counts[key] *= 0.9

    def choose(self) -> str | None:
        fronts = [(q, names[0]) for q, names in enumerate(self.lists) if names]
        if not fronts:
            return None
        return min(
            fronts, key=lambda f: self.index[f[0], self.bucket(self.clock - self.used[f[1]])]
        )[1]

    def _index(self, queue: int, first: int) -> float:
        best = num_hits = time = 0.0
        for bucket in self.BUCKETS[first:]:
            reach = [self._ended(queue, later) for later in self.BUCKETS[bucket:]]
            width = 2 ** (bucket - 1) if bucket else 1
            num_hits += self.hits.get((queue, bucket), 0) + 8 * (queue + 1) / (queue + 2)
            time += width * (sum(reach) - reach[0] / 2 + 8)
            best = max(best, num_hits / time)
        return best

    def _ended(self, queue: int, bucket: int) -> float:
        return self.hits.get((queue, bucket), 0) + self.lost.get((queue, bucket), 0)
