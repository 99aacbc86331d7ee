"""The kernel: commands, guards, history, receipts and leases over SQL; it knows no domain noun."""
