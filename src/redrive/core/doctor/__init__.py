"""What `redrive doctor` finds: pure functions over a snapshot of the cluster; `table.py` lists them, `examine` runs them."""
