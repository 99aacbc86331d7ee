"""The forge slice: a mention becomes a durable task, a run, a published change and a proven answer."""
