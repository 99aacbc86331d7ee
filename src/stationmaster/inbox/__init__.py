"""What arrived from outside, once each."""
