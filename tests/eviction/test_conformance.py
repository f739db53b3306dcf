"""Every policy that orders names keeps the contract, and leaves in the order that it describes."""

from __future__ import annotations

import pytest

from tests.eviction.oracles import (
    ARCOracle,
    GittinsOracle,
    IsolatedOracle,
    LRUOracle,
    S3FIFOOracle,
)
from tieredkv.pool.eviction import ARC, LRU, S3FIFO, EvictionPolicy, Gittins, IsolatedLRU
from tieredkv.testing.policies import PolicyConformance, PolicyMachine, PolicyOracle


class TestLRU(PolicyConformance):
    def make_policy(self) -> EvictionPolicy:
        return LRU()


class TestIsolatedLRU(PolicyConformance):
    def make_policy(self) -> EvictionPolicy:
        return IsolatedLRU()


class TestS3FIFO(PolicyConformance):
    def make_policy(self) -> EvictionPolicy:
        return S3FIFO()


class TestARC(PolicyConformance):
    def make_policy(self) -> EvictionPolicy:
        return ARC()


class TestGittins(PolicyConformance):
    def make_policy(self) -> EvictionPolicy:
        return Gittins()


class TenantsOfS3FIFOMachine(PolicyMachine):
    def make_policy(self) -> EvictionPolicy:
        return S3FIFO()


class TenantsOfIsolatedLRUMachine(PolicyMachine):
    def make_policy(self) -> EvictionPolicy:
        return IsolatedLRU()


class TenantsOfGittinsMachine(PolicyMachine):
    def make_policy(self) -> EvictionPolicy:
        return Gittins()


class LRUMachine(PolicyMachine):
    def make_policy(self) -> EvictionPolicy:
        return LRU()

    def make_oracle(self) -> PolicyOracle:
        return LRUOracle()


class IsolatedLRUMachine(PolicyMachine):
    def make_policy(self) -> EvictionPolicy:
        return IsolatedLRU()

    def make_oracle(self) -> PolicyOracle:
        return IsolatedOracle()


class S3FIFOMachine(PolicyMachine):
    def make_policy(self) -> EvictionPolicy:
        return S3FIFO()

    def make_oracle(self) -> PolicyOracle:
        return S3FIFOOracle()


class ARCMachine(PolicyMachine):
    def make_policy(self) -> EvictionPolicy:
        return ARC()

    def make_oracle(self) -> PolicyOracle:
        return ARCOracle()


class GittinsMachine(PolicyMachine):
    def make_policy(self) -> EvictionPolicy:
        return Gittins()

    def make_oracle(self) -> PolicyOracle:
        return GittinsOracle()


TestLRUMachine = pytest.mark.stateful(LRUMachine.TestCase)
TestIsolatedLRUMachine = pytest.mark.stateful(IsolatedLRUMachine.TestCase)
TestS3FIFOMachine = pytest.mark.stateful(S3FIFOMachine.TestCase)
TestARCMachine = pytest.mark.stateful(ARCMachine.TestCase)
TestGittinsMachine = pytest.mark.stateful(GittinsMachine.TestCase)
TestTenantsOfS3FIFOMachine = pytest.mark.stateful(TenantsOfS3FIFOMachine.TestCase)
TestTenantsOfIsolatedLRUMachine = pytest.mark.stateful(TenantsOfIsolatedLRUMachine.TestCase)
TestTenantsOfGittinsMachine = pytest.mark.stateful(TenantsOfGittinsMachine.TestCase)
