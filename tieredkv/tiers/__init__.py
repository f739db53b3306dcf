"""The tiers of a store: L1, the chain of L2 tiers, and what moves values between them."""
