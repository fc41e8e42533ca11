/* Elementary functions in float32 without branches, tables or calls, so that loops vectorise. */

#include <stdint.h>
#include <string.h>

/* A loop with a call is not vectorised, and these are too long to be inlined by default. */
#define INLINE static inline __attribute__((always_inline))

INLINE uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

INLINE float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

INLINE float magnitude(float x) { return __builtin_fabsf(x); }

INLINE float with_sign(float size, float sign) { return __builtin_copysignf(size, sign); }

/* Clamps the first argument. NaN stays NaN, which it would not with the operands exchanged. */
INLINE float at_least(float x, float low) { return x < low ? low : x; }

INLINE float at_most(float x, float high) { return x > high ? high : x; }

/* Global variables, so that the compiler cannot know their values: it makes one instruction of a
   clamp to a variable, but a comparison and a select of a clamp to a constant. */
float qneurons_zero = 0.0f, qneurons_lowest_exponent = -88.0f;
#define ZERO qneurons_zero

/* a * b + c with one rounding if the processor has it; this matters next to a kink. */
INLINE float fused(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

/* Adding it rounds to an integer, which is then in the low bits of the sum. */
#define ROUNDER 12582912.0f

typedef struct {
    float exp, expm1;
} Exponential;

/* exp(x) and exp(x) - 1 for x <= 0, to 2 ulp where multiplications are fused, else to 2 + |x| / 2;
   exp(x) is 0 once it is below the normal numbers. */
INLINE Exponential exponential(float x) {
    x = at_least(x, qneurons_lowest_exponent);
    float shifted = x * 1.44269504f + (ROUNDER + 127);
    float r = x - (shifted - (ROUNDER + 127)) * 0.693147181f;
    float tail = 4.166722098e-2f + r * (8.367172394e-3f + r * 1.388239820e-3f);
    tail = 4.999999804e-1f + r * (1.666653875e-1f + r * tail);
    float change = r + r * r * tail;
    float scale = float_of(bits_of(shifted) << 23); /* 2^n, and 0 for n = -127 */
    return (Exponential){scale * change + scale, scale * change + (scale - 1)};
}

/* exp(x) alone, a little less exact and faster. */
INLINE float exp_of(float x) {
    x = at_least(x, qneurons_lowest_exponent);
    float shifted = x * 1.44269504f + (ROUNDER + 127);
    float r = x - (shifted - (ROUNDER + 127)) * 0.693147181f;
    float tail = 1.666711447e-1f + r * (4.189011322e-2f + r * 8.312524910e-3f);
    float exp = 1 + r * (1 + r * (4.999923179e-1f + r * tail));
    return exp * float_of(bits_of(shifted) << 23);
}

/* -2 log(u) for normal u > 0, accurate relative to itself also near u = 1. */
INLINE float minus_twice_log(float u) {
    uint32_t above = bits_of(u) - 0x3f3504f3; /* sqrt(1/2) */
    int32_t exponent = above & 0xff800000; /* times 2^23 */
    float f = float_of(bits_of(u) - exponent) - 1;
    float tail = 3.448644924e-1f + f * (-3.236100268e-1f + f * 2.016475794e-1f);
    tail = 4.994245703e-1f + f * (-3.981376628e-1f + f * tail);
    tail = 1.000006469f + f * (-6.666942981e-1f + f * tail);
    return f * (f * tail - 2) + (float)exponent * (-1.386294361f * 0x1p-23f);
}

/* log(1 + y) for 0 <= y <= 1, as 2 artanh(y / (2 + y)). */
INLINE float log_of_one_plus(float y) {
    float s = y / (2 + y), s2 = s * s;
    float tail = 6.666641317e-1f +
                 s2 * (4.002169720e-1f + s2 * (2.799916990e-1f + s2 * 2.802432515e-1f));
    return 2 * s + s * s2 * tail;
}

enum { NO_STEP, STILL, TINY, SMALL, CROSSING, FAR, NUM_STEPS }; /* kinds of steps delta x: see cpu_rows.h */

typedef struct {
    float cosh, sinhc; /* sinhc(t) = sinh(t) / t */
} Hyperbola;

/* Its values at h / 2, given h^2, for |h| <= 3, or for |h| <= 1/2 if the steps are TINY. */
INLINE Hyperbola hyperbola_of_half(float h2, int steps) {
    if (steps <= TINY)
        return (Hyperbola){1 + h2 * (1.249994147e-1f + h2 * 2.611730178e-3f),
                           1 + h2 * (4.166658308e-2f + h2 * 5.219135246e-4f)};
    float cosh = 2.604283421e-3f + h2 * (2.165937388e-5f + h2 * 1.026973436e-7f);
    float sinhc = 5.208450313e-4f + h2 * (3.096171998e-6f + h2 * 1.130462784e-8f);
    return (Hyperbola){1 + h2 * (1.249999026e-1f + h2 * cosh),
                       1 + h2 * (4.166665625e-2f + h2 * sinhc)};
}

typedef struct {
    float sin, cos;
} Circle;

/* Up to |x| = 6e6 the error is that of rounding x. Beyond, only |sin|, |cos| <= 1 is certain. */
INLINE Circle circle(float x) {
    float shifted = x * 0.636619772f + ROUNDER;
    uint32_t quarter = bits_of(shifted);
    float n = shifted - ROUNDER;
    float r = x - n * 1.5703125f - n * 4.837512969970703125e-4f - n * 7.549789948768648e-8f;
    r = at_most(at_least(r, -1.0f), 1.0f);
    float r2 = r * r;
    float odd = r + r * r2 * (-1.666665485e-1f + r2 * (8.332172304e-3f + r2 * -1.951648276e-4f));
    float even = 1 - 0.5f * r2 +
                 r2 * r2 * (4.166664672e-2f + r2 * (-1.388735982e-3f + r2 * 2.443753594e-5f));
    float sin = quarter & 1 ? even : odd, cos = quarter & 1 ? odd : even;
    return (Circle){float_of(bits_of(sin) ^ (quarter & 2) << 30),
                    float_of(bits_of(cos) ^ ((quarter + 1) & 2) << 30)};
}
