// Puts vramwise's allocator into the place of PyTorch's. One source file, so that it compiles in seconds.
#include "install.h"
