"""What hfppl's speed is, relative to what else one could do on the same machine in the same hour."""
