"""Collections by neural networks of the user's own: where faces have their boxes, and which images look alike.

The only code of ``datasets`` that speaks to model libraries (torch, transformers, mediapipe), and inside functions only, so that
nothing is loaded until a folder asks for it.

What could not be checked: real weights were not available. Tests run randomly initialised encoders of the real architectures, and
a stand-in for MediaPipe's model; they show that the machinery works as described, and nothing about how good the boxes or the
neighbours are.
"""
