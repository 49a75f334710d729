/* modify: rounding in another direction, saturation and flushing, around an operation that knows nothing of it. */
#include <fenv.h>
#include <math.h>
#include <string.h>

#include "operations.h"

static float flushed(float value)
{
	return fpclassify(value) == FP_SUBNORMAL ? copysignf(0, value) : value;
}

static float saturated(float value)
{
	return value > 0 ? value < 1 ? value : 1 : 0;
}

/* Subnormal sources are zeros, too: they are changed in a copy of the instruction's operands. */
static void run_flushed(struct warp *warp, const struct instruction *instruction)
{
	struct instruction copy = *instruction;

	for (int i = 0; i < instruction->count; i++) {
		const float *from = SLOT(float, i + 1);
		float *to = (float *)(warp->registers + instruction->slot[MOST_OPERANDS - 1 - i]);

		EACH_LANE(to[lane] = flushed(from[lane]));
		copy.slot[i + 1] = instruction->slot[MOST_OPERANDS - 1 - i];
	}
	copy.plain(warp, &copy);
	EACH_LANE(SLOT(float, 0)[lane] = flushed(SLOT(float, 0)[lane]));
}

static int rounding_of(uint8_t modifiers)
{
	return modifiers & MODIFIER_TOWARDS_ZERO ? FE_TOWARDZERO
		: modifiers & MODIFIER_DOWN      ? FE_DOWNWARD
		: modifiers & MODIFIER_UP        ? FE_UPWARD
						 : FE_TONEAREST;
}

OPERATION(run_modified)
{
	const uint8_t modifiers = instruction->modifiers;

	fesetround(rounding_of(modifiers));
	if (modifiers & MODIFIER_FLUSH)
		run_flushed(warp, instruction);
	else
		instruction->plain(warp, instruction);
	fesetround(FE_TONEAREST);
	if (modifiers & MODIFIER_SATURATE)
		EACH_LANE(SLOT(float, 0)[lane] = saturated(SLOT(float, 0)[lane]));
}

void modifiers_take(struct decoding *decoding)
{
	static const struct {
		const char *part;
		uint8_t modifier;
	} modifiers[] = {{"sat", MODIFIER_SATURATE}, {"ftz", MODIFIER_FLUSH}, {"rz", MODIFIER_TOWARDS_ZERO},
		{"rm", MODIFIER_DOWN}, {"rp", MODIFIER_UP}, {"relu", MODIFIER_RELU}};

	for (size_t i = 0; i < sizeof(modifiers) / sizeof(*modifiers); i++)
		if (take_part(decoding, modifiers[i].part))
			decoding->instruction->modifiers |= modifiers[i].modifier;
}

int modifiers_apply(struct decoding *decoding, const char *name, struct error *err)
{
	struct instruction *instruction = decoding->instruction;
	const char *type = strrchr(name, '.');

	if (!instruction->modifiers || strstr(type, "f16")) /* half.c does it itself */
		return 0;
	if (!strcmp(type, ".f64")) /* rcp.approx.ftz.f64 is all there is; its subnormal numbers are kept */
		instruction->modifiers &= (uint8_t)~MODIFIER_FLUSH;
	if (strcmp(type, ".f32") && (strcmp(type, ".f64") || instruction->modifiers & MODIFIER_SATURATE))
		return not_understood(decoding, err, "an unknown modifier");
	instruction->plain = instruction->execute;
	instruction->execute = run_modified;
	instruction->count = (uint8_t)(decoding->statement->operand_count - 1);
	for (int i = 0; i < instruction->count; i++)
		instruction->slot[MOST_OPERANDS - 1 - i] = scratch_register(decoding, 4);
	return 0;
}
