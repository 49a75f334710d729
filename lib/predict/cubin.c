#include "predict/cubin.h"

#include <elf.h>
#include <stdbool.h>
#include <string.h>

#include "predict/occupancy.h"

#define MACHINE_CUDA 190
#define MOST_REGISTERS 255
#define MOST_BYTES (1 << 24) /* of local or shared memory: far beyond any GPU */

/* Attributes in .nv.info: format, name, length of the value, then a symbol's number and a number. */
enum { INFO_VALUE = 4, INFO_FRAME_SIZE = 0x11, INFO_REGISTERS = 0x2f };
struct info {
	uint8_t format, name;
	uint16_t length;
};

struct image {
	const uint8_t *bytes;
	size_t length;
	Elf64_Ehdr header;
	Elf64_Shdr names; /* the section that holds the names of sections */
};

struct part {
	const uint8_t *bytes; /* NULL: there is none */
	size_t length;
};

static int damaged(struct error *err, const char *what)
{
	return error_set(err, STATUS_ENVIRONMENT, "the compiler's machine code cannot be read: %s", what);
}

/* A section's bytes; none when they are not in the file. */
static struct part part_of(const struct image *image, const Elf64_Shdr *section)
{
	if (section->sh_type == SHT_NOBITS || section->sh_offset > image->length ||
		section->sh_size > image->length - section->sh_offset)
		return (struct part){0};
	return (struct part){image->bytes + section->sh_offset, (size_t)section->sh_size};
}

/* Of a table of strings; "" for what is not in it. */
static const char *string_at(struct part table, size_t offset)
{
	if (!table.bytes || offset >= table.length ||
		!memchr(table.bytes + offset, '\0', table.length - offset))
		return "";
	return (const char *)table.bytes + offset;
}

static bool section_at(const struct image *image, size_t index, Elf64_Shdr *section)
{
	if (index >= image->header.e_shnum)
		return false;
	memcpy(section, image->bytes + image->header.e_shoff + index * sizeof(*section), sizeof(*section));
	return true;
}

static int open_image(struct image *image, struct error *err)
{
	Elf64_Ehdr *header = &image->header;

	if (image->length < sizeof(*header))
		return damaged(err, "it is too short");
	memcpy(header, image->bytes, sizeof(*header));
	if (memcmp(header->e_ident, ELFMAG, SELFMAG) || header->e_ident[EI_CLASS] != ELFCLASS64 ||
		header->e_ident[EI_DATA] != ELFDATA2LSB || header->e_machine != MACHINE_CUDA)
		return damaged(err, "it is no ELF file for a GPU");
	if (header->e_shentsize != sizeof(Elf64_Shdr) || header->e_shoff > image->length ||
		header->e_shnum > (image->length - header->e_shoff) / sizeof(Elf64_Shdr) ||
		!section_at(image, header->e_shstrndx, &image->names))
		return damaged(err, "its table of sections lies outside of it");
	return 0;
}

/* The section of a kernel, ".text." or another, or the section of that name where `kernel` is "". */
static bool find_section(
	const struct image *image, const char *prefix, const char *kernel, Elf64_Shdr *section)
{
	struct part names = part_of(image, &image->names);
	size_t length = strlen(prefix);

	for (size_t i = 0; section_at(image, i, section); i++) {
		const char *name = string_at(names, section->sh_name);

		if (!strncmp(name, prefix, length) && !strcmp(name + length, kernel))
			return true;
	}
	return false;
}

/* The number of a symbol; 0, which no symbol has, when there is none of that name. */
static uint32_t find_symbol(const struct image *image, const char *kernel)
{
	Elf64_Shdr section, strings;
	struct part symbols, names;
	Elf64_Sym symbol;

	if (!find_section(image, ".symtab", "", &section) || !section_at(image, section.sh_link, &strings))
		return 0;
	symbols = part_of(image, &section);
	names = part_of(image, &strings);
	for (uint32_t i = 1; i < symbols.length / sizeof(symbol); i++) {
		memcpy(&symbol, symbols.bytes + i * sizeof(symbol), sizeof(symbol));
		if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC &&
			!strcmp(string_at(names, symbol.st_name), kernel))
			return i;
	}
	return 0;
}

/* What .nv.info says of a symbol; -1: nothing. */
static int64_t find_info(struct part infos, int name, uint32_t symbol)
{
	struct info info;
	uint32_t value[2];

	for (size_t at = 0; infos.length - at >= sizeof(info);) {
		memcpy(&info, infos.bytes + at, sizeof(info));
		at += sizeof(info);
		if (info.format != INFO_VALUE)
			continue; /* the length is the value */
		if (info.length > infos.length - at)
			break;
		if (info.name == name && info.length == sizeof(value)) {
			memcpy(value, infos.bytes + at, sizeof(value));
			if (value[0] == symbol)
				return value[1];
		}
		at += info.length;
	}
	return -1;
}

int cubin_read(const void *bytes, size_t length, const char *kernel, int capability,
	struct cubin_kernel *found, struct error *err)
{
	struct image image = {.bytes = bytes, .length = length};
	struct part text = {0}, infos = {0};
	Elf64_Shdr section;
	int64_t registers, frame;
	uint32_t symbol;

	*found = (struct cubin_kernel){0};
	if (open_image(&image, err) < 0)
		return -1;
	symbol = find_symbol(&image, kernel);
	if (find_section(&image, ".text.", kernel, &section))
		text = part_of(&image, &section);
	if (find_section(&image, ".nv.info", "", &section))
		infos = part_of(&image, &section);
	if (!symbol || !text.bytes || !infos.bytes)
		return error_set(
			err, STATUS_ENVIRONMENT, "the compiler's machine code holds no kernel %s", kernel);
	registers = find_info(infos, INFO_REGISTERS, symbol);
	frame = find_info(infos, INFO_FRAME_SIZE, symbol);
	if (registers < 1 || registers > MOST_REGISTERS || frame < 0 || frame > MOST_BYTES)
		return damaged(err, "it does not say what registers and memory the kernel takes");
	found->registers = (int)registers;
	found->spilled_bytes = (int)frame;
	if (find_section(&image, ".nv.shared.", kernel, &section)) {
		if (section.sh_size > MOST_BYTES)
			return damaged(err, "it asks for more shared memory than there is");
		found->shared_bytes = (int)section.sh_size;
		/* there the section begins with what is the driver's */
		if (capability >= 90 && found->shared_bytes >= GPU_DRIVER_SHARED)
			found->shared_bytes -= GPU_DRIVER_SHARED;
	}
	code_read(text.bytes, text.length, capability, &found->once, &found->loop, &found->beside);
	return 0;
}
