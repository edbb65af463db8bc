import os

__version__ = "2.11.0+fake"
cuda = None if os.environ.get("TORCH_CUDA") == "none" else "13.0"
