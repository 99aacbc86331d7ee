"""A scripted model behind the OpenAI Responses API: what a real Codex binary talks to in the demo and in tests.

It listens on loopback only, knows nothing of the product, and does exactly what its scenario says; README.md beside
this file is the format of a scenario.
"""

from __future__ import annotations

from stationmaster.standins.responses_model.asked import Asked
from stationmaster.standins.responses_model.scenario import Scenario, ScenarioError
from stationmaster.standins.responses_model.server import ResponsesModel, main

__all__ = ["Asked", "ResponsesModel", "Scenario", "ScenarioError", "main"]
