"""`HFBucketBackend`: values as files of a Hugging Face Bucket."""

from tieredkv.backends.hfbucket.backend import HFBucketBackend

__all__ = ["HFBucketBackend"]
