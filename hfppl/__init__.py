"""Steer language models with sequential Monte Carlo."""
