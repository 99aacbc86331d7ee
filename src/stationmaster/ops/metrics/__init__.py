"""What the product tells a monitoring system: counted from the history, read from the ledger, or seen in this process.

`families` lists every metric, `follow` counts the history as it grows, `look` reads what is true now, `exposition` puts
all of it into Prometheus's words. A scrape writes nothing and costs the same on a big ledger as on a small one.
"""
