/* embed: a file of the source tree as bytes in the binary. */
#pragma once

/* Defines `const char name[]`, the file's bytes and a zero byte behind them, and `name_end`, which points
 * at that zero byte. `path` is relative to the root of the source tree. Used at file scope. */
#define EMBED(name, path)                                                                                    \
	__asm__(".pushsection .rodata\n"                                                                     \
		".global " #name "\n" #name ":\n"                                                            \
		".incbin \"" path "\"\n"                                                                     \
		".global " #name "_end\n" #name "_end:\n"                                                    \
		".byte 0\n"                                                                                  \
		".popsection\n");                                                                            \
	extern const char name[], name##_end[]
