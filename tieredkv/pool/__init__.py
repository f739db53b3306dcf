"""L1 memory: the arena, its allocator, leases, and eviction policies."""
