"""Recording, logging and scheduled settings inside of other people's training loops.

``vramwise.callbacks.transformers`` is for the Trainer of Hugging Face, ``vramwise.callbacks.lightning`` for
Lightning, ``vramwise.callbacks.loop`` for a loop of your own. Each needs what it is for, and is imported by its name.
"""
