"""The Codex app-server driver."""
