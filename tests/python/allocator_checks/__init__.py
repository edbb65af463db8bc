"""Programs that use PyTorch's allocator in every way that its interface has.

Each check is a function that returns facts. They must be the same with PyTorch's own allocator and with vramwise's, so they
are about what the interface promises, and not about where blocks lie.
"""
