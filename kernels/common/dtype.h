/* dtype: the numbers of element types, for the preprocessor of both sides. */
#pragma once

#define INPUT_F32 0
#define INPUT_BF16 1
#define INPUT_F16 2
