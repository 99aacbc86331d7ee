"""`stationmaster init`: from nothing to a configured home, a service, a webhook, and the proof that they meet."""
