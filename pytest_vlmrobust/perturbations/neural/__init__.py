"""Perturbations by neural networks: optional extras, with checkpoints of the user's own.

Beside ``backends`` the only code that speaks to model libraries (torch, spandrel), and inside functions only, so
that nothing is loaded until a network is asked for. The rest of ``perturbations`` reaches it through the package's attributes
alone.

What could not be checked: real weights and GPUs were not available. Tests run randomly initialised networks of the real
architectures on a CPU; they show that the machinery does what is said here, and nothing about how the images look.
"""
