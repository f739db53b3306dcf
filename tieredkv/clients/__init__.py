"""Vendors' clients: the only imports of their packages, and the only place that knows their errors.

A client here has one owner at a time, raises one kind of error, and is closed by its owner only.
"""
